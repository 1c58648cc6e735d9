"""A keep-alive HTTP/1.1 client for hot paths: requests are bytes made beforehand, and each is sent exactly once.

It follows no redirects, keeps no cookies, decompresses nothing and knows no proxies: what the server answers is what
is measured. Knows nothing of Locust.

    site = Site.of("https://[::1]:8443/identity", verify="ca.pem")
    client = HttpClient(site)
    response = client.exchange(site.request("GET", "/v3", {"Accept": "application/json"}))
    response.status, response.headers["content-type"], response.body, response.failure, response.first_byte_s
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import re
import socket
import ssl
import urllib.parse
from collections.abc import Mapping
from time import perf_counter

from _errors import NotReady
from _http_parser import BadResponse, NoResponse, Response, ShortBody
from _wire import TlsWire, Wire

TIMEOUT_S = 60.0
"""A request that is not answered by then is a failure."""

_PORTS = {"http": 80, "https": 443}


@dataclasses.dataclass(slots=True)
class Request:
    """A request as it goes over the wire. Bytes may hold secrets: they stay out of repr()."""

    method: str
    url: str
    close: bool
    """The connection is closed after the answer, and the server is told so."""
    head: bytes = dataclasses.field(repr=False)
    """Up to where the body's length belongs."""
    wire: bytes = dataclasses.field(repr=False)

    def with_body(self, body: bytes) -> Request:
        """The same request with another body."""
        wire = b"%bContent-Length: %d\r\n\r\n%b" % (self.head, len(body), body)
        return Request(self.method, self.url, self.close, self.head, wire)


@dataclasses.dataclass(frozen=True)
class Site:
    """Where a server is, and how to speak to it."""

    scheme: str
    host: str
    """A name, or an address without brackets."""
    port: int
    path: str
    """What every request's path begins with; empty for none."""
    keep_alive: bool = True
    """False: a new connection for each request."""
    context: ssl.SSLContext | None = dataclasses.field(default=None, repr=False)
    request_host: str = ""
    """What requests call the server, where one address answers for many names; empty: what its URL calls it.

    It is their Host and, under TLS, whose certificate is asked for, as if that name led to this address.
    """

    @classmethod
    def of(cls, url: str, verify: bool | str = True, keep_alive: bool = True, request_host: str = "") -> Site:
        """The site of a URL, whose path is kept. `verify` as tls_context() takes it. Raises NotReady."""
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname, parts.port
            if host is not None and ":" not in host:
                host = host.encode("idna").decode()  # also refuses what no resolver takes
        except ValueError:
            parts, host, port = urllib.parse.urlsplit(""), None, None
        if host is None or not _is_plain(parts):
            # Not shown: what is wrong with it may be that it holds a password.
            raise NotReady("The server's URL must look like http://address:port/path, without user, query or fragment.")
        context = tls_context(verify) if parts.scheme == "https" else None
        port = _PORTS[parts.scheme] if port is None else port
        try:
            asked_for = read_request_host(request_host) if request_host else ""
            site = cls(parts.scheme, host, port, parts.path.rstrip("/"), keep_alive, context, asked_for)
            if context is not None:  # OpenSSL takes fewer names than a Host may be
                context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=site.tls_name)
        except (ValueError, ssl.SSLError):
            raise NotReady(f"{request_host or host!r} is not a host's name, such as web.example.com.") from None
        return site

    @property
    def authority(self) -> str:
        """Host and, where it is not the scheme's own, port, as they stand in a URL."""
        host = f"[{self.host.partition('%')[0]}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def tls_name(self) -> str:
        """Name or address whose certificate the server must show."""
        if self.request_host:
            return re.sub(r":[0-9]+$", "", self.request_host).strip("[]")
        return self.host.partition("%")[0]

    def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None, host: str = ""
    ) -> Request:
        """Build a request; `path` may be empty. `host`: another Host than the site's, for this request alone.

        Raises ValueError, without any value, for what HTTP cannot carry.
        """
        target = (self.path + path) or "/"
        if not re.fullmatch(r"[A-Z]+", method) or not re.fullmatch(r"/[!-~]*", target):
            raise ValueError("a method is capital letters; a path begins with / and is ASCII without spaces")
        named = read_request_host(host) if host else self.request_host or self.authority
        lines = [f"{method} {target} HTTP/1.1", f"Host: {named}"]
        lines += [_header_line(name, value) for name, value in headers.items()]
        close = any(name.lower() == "connection" and "close" in value.lower() for name, value in headers.items())
        if not self.keep_alive and not close:
            lines.append("Connection: close")
        head = ("\r\n".join(lines) + "\r\n").encode("latin-1")
        url = f"{self.scheme}://{self.authority}{target}"
        request = Request(method, url, close or not self.keep_alive, head, head + b"\r\n")
        return request if body is None else request.with_body(body)


def read_request_host(text: str) -> str:
    """A Host header's value, name or name:port, an IPv6 address in brackets. Raises ValueError for anything else.

    Names in other letters than ASCII's come back as DNS knows them.
    """
    parts = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+)(:[0-9]{1,5})?", text)
    if parts is None or int((parts[2] or ":0")[1:]) > _LAST_PORT:
        raise ValueError(_NO_HOST)
    try:
        name = parts[1] if parts[1].isascii() else parts[1].encode("idna").decode()
    except UnicodeError:
        raise ValueError(_NO_HOST) from None
    if not re.fullmatch(r"\[.*\]|[-._~!$&'()*+,;=%0-9A-Za-z]+", name):
        raise ValueError(_NO_HOST)
    return name + (parts[2] or "")


_LAST_PORT = 65535
_NO_HOST = "a Host is a name or address, and perhaps :port"


def _header_line(name: str, value: str) -> str:
    if not re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", name) or not re.fullmatch(r"[\t -~\x80-\xff]*", value):
        raise ValueError(f"header {name!r}: HTTP cannot carry this name or its value")
    if name.lower() in ("content-length", "transfer-encoding", "host"):
        raise ValueError(f"header {name!r} is set by the client")
    return f"{name}: {value}"


def _is_plain(parts: urllib.parse.SplitResult) -> bool:
    odd = parts.query or parts.fragment or "@" in parts.netloc or not re.fullmatch(r"[!-~]*", parts.path)
    return parts.scheme in _PORTS and not odd


@functools.cache
def tls_context(verify: bool | str) -> ssl.SSLContext:
    """One TLS context for all users of a process: reading the certificates for each of them takes seconds.

    `verify`: True for the system's authorities, a file's name for another one, False for no check at all. Raises
    NotReady where the file is not one.
    """
    try:
        context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    except (OSError, ValueError) as error:
        raise NotReady(f"{verify}: not a file of certificates ({type(error).__name__}).") from None
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class HttpClient:
    """One connection to a site, opened when it is needed; for one greenlet at a time. To be closed in the end."""

    def __init__(self, site: Site, connect_timeout_s: float = TIMEOUT_S, read_timeout_s: float = TIMEOUT_S) -> None:
        """`connect_timeout_s` counts for name, TCP and TLS together; `read_timeout_s` from sending to the last byte."""
        self.site = site
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._wire: Wire | None = None
        self._busy = False

    def exchange(self, request: Request) -> Response:
        """Send the request once, and read the answer. Failures are in the response, in a few fixed words.

        Only what kills the greenlet is raised; the connection is closed then. RuntimeError: another greenlet is at it.
        """
        if self._busy:
            raise RuntimeError("one exchange at a time: give each greenlet a client of its own")
        self._busy = True
        started = perf_counter()
        response = Response(request.method == "HEAD", started)
        try:
            self._exchange(request, response, started)
        except (OSError, BadResponse, NoResponse) as error:
            words = describe(error)
            # A server that fails in the middle of an answer has said its status first, and that tells more.
            response.failure = f"{response.status}, then {words}" if response.status else words
            response.reusable = False
            response.last_byte_s = perf_counter() - started
        except BaseException:
            self.close()
            raise
        finally:
            self._busy = False
        if request.close or not response.reusable:
            self.close()
        return response

    def _exchange(self, request: Request, response: Response, started: float) -> None:
        wire = self._wire
        if wire is None or not wire.is_usable():
            wire = self._open()
            response.connect_s = perf_counter() - started
        wire.limit(self._read_timeout_s)
        wire.send(request.wire)
        data = wire.receive()
        response.first_byte_s = wire.received_s - started
        while not response.feed(data):
            data = wire.receive_more()
        response.last_byte_s = wire.received_s - started

    def open(self) -> None:
        """Open a connection now, for the next exchange. Raises OSError, for which describe() has words."""
        self._open()

    def _open(self) -> Wire:
        self.close()
        site = self.site
        if site.context is None:
            self._wire = Wire(site.host, site.port, self._connect_timeout_s)
        else:
            self._wire = TlsWire(site.host, site.port, self._connect_timeout_s, site.context, site.tls_name)
        return self._wire

    def close(self) -> None:
        """Close the connection; the next exchange opens another one."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def describe(error: BaseException) -> str:
    """A connection's failure in a few words that are the same every time, and hold nothing of what was sent."""
    for kind, words in _KINDS:
        if isinstance(error, kind):
            return words
    number = error.errno if isinstance(error, OSError) else None
    return _NUMBERS.get(number or 0, f"no response: {type(error).__name__}")


_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (NoResponse, "connection closed without a response"),
    (ShortBody, "short body"),
    (BadResponse, "not a valid HTTP response"),
    (TimeoutError, "timed out"),
    (ConnectionRefusedError, "connection refused"),
    (ConnectionError, "connection reset"),
    (ssl.SSLCertVerificationError, "TLS certificate not accepted"),
    (ssl.SSLError, "TLS failed"),
    (socket.gaierror, "host name not found"),
)
_NUMBERS = {
    errno.ENETUNREACH: "network unreachable",
    errno.EHOSTUNREACH: "network unreachable",
    errno.EMFILE: "too many open files",
    errno.ENFILE: "too many open files",
    errno.EADDRNOTAVAIL: "no local port left",
}
