"""What the client takes for a site, and for a request to it, before anything is sent."""

from __future__ import annotations

import pytest
from _errors import NotReady
from _http_client import Site

SITES = {
    "http://bücher.example/": ("xn--bcher-kva.example", 80, "", "xn--bcher-kva.example"),
    "http://h": ("h", 80, "", "h"),
    "http://H:80/": ("h", 80, "", "h"),
    "https://h:80/identity/": ("h", 80, "/identity", "h:80"),
    "http://[::1]": ("::1", 80, "", "[::1]"),
    "http://[::1]:5000/a/b": ("::1", 5000, "/a/b", "[::1]:5000"),
}


@pytest.mark.parametrize("url", SITES)
def test_sites(url: str) -> None:
    host, port, path, authority = SITES[url]
    site = Site.of(url)
    assert (site.host, site.port, site.path, site.authority) == (host, port, path, authority)
    request = site.request("GET", "/x", {})
    assert request.url == f"{site.scheme}://{authority}{path}/x"
    assert request.wire == f"GET {path}/x HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode()


@pytest.mark.parametrize("url", ["", "h:80", "ftp://h", "http://", "http://h:x", "http://u:secret@h", "http://" + "a" * 64, "http://a..b", "http://h/?a=b", "http://h/a b", "http://[::1"])  # fmt: skip  # noqa: E501
def test_what_is_no_site(url: str) -> None:
    with pytest.raises(NotReady) as error:
        Site.of(url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("get", "/", {}),
        ("GET", "x", {}),
        ("GET", "/a b", {}),
        ("GET", "/", {"X": "secret\r\nY: 1"}),
        ("GET", "/", {"X Y": "secret"}),
        ("GET", "/", {"X": "secret\u0100"}),
        ("GET", "/", {"Content-Length": "7"}),
        ("GET", "/", {"hOST": "secret"}),
    ],
)
def test_what_is_no_request(method: str, path: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError) as error:
        Site.of("http://h").request(method, path, headers)
    assert "secret" not in str(error.value)


HOSTS = {
    "web.example.com": "web.example.com",
    "web.example.com:8080": "web.example.com:8080",
    "a_b": "a_b",
    "bücher.example:80": "xn--bcher-kva.example:80",
    "[::1]:443": "[::1]:443",
}


@pytest.mark.parametrize("host", HOSTS)
def test_a_request_may_ask_for_another_host_and_names_one_only(host: str) -> None:
    site = Site.of("http://127.0.0.1:1/base", request_host=host)
    assert (site.host, site.port, site.authority) == ("127.0.0.1", 1, "127.0.0.1:1")
    request = site.request("GET", "/x", {})
    assert request.wire == f"GET /base/x HTTP/1.1\r\nHost: {HOSTS[host]}\r\n\r\n".encode()
    assert request.url == "http://127.0.0.1:1/base/x"
    for asker in (site, Site.of("http://127.0.0.1:1")):  # one request's goes before the site's
        wire = asker.request("GET", "/", {}, host="other").wire
        assert wire.count(b"Host:") == 1 and b"\r\nHost: other\r\n" in wire


@pytest.mark.parametrize(
    "host", ["a b", "a/b", "a\r\nX: y", "a:", "a:x", "a:65536", "u@h", "[::1", "::1", "ü" * 99, "a\n"]
)
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(NotReady, match="not a host's name"):
        Site.of("http://h", request_host=host)
    with pytest.raises(ValueError, match="a Host is"):
        Site.of("http://h").request("GET", "/", {}, host=host)
