"""TLS: whom the client trusts, and that it behaves as without. Certificates are made for each run of the tests."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import time
from pathlib import Path

import gevent
import pytest
from _errors import NotReady
from _http_client import HttpClient, Site
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.known_server import Answer, KnownServer

PATIENT_S = 20.0


class Authority:
    """Signs certificates, and writes its own and theirs into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.file.write_bytes(self._signed(self._name, self._key, constraints).public_bytes(_PEM))

    def server(self, name: x509.GeneralName) -> ssl.SSLContext:
        """What a server of this name or address shows."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
        certificate = self._signed(subject, key, x509.SubjectAlternativeName([name]))
        private = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path = self._folder / "server.pem"
        path.write_bytes(certificate.public_bytes(_PEM) + private)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=True)
            .add_extension(identifier, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )


_PEM = serialization.Encoding.PEM
ADDRESS = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


def client_of(server: KnownServer, verify: bool | str, host: str = "127.0.0.1") -> HttpClient:
    return HttpClient(Site.of(server.url.replace("127.0.0.1", host), verify), PATIENT_S, PATIENT_S)


def ask(client: HttpClient, body: bytes | None = None) -> str | None:
    return client.exchange(client.site.request("POST", "/x", {}, body)).failure


def test_a_server_of_the_right_authority(authority: Authority) -> None:
    large = b"x" * 1000000
    sizes = []

    def answer(request: object) -> Answer:
        sizes.append(len(getattr(request, "body", b"")))
        return Answer(body=large)

    with KnownServer(answer, tls=authority.server(ADDRESS)) as server:
        client = client_of(server, str(authority.file))
        for number in range(3):
            response = client.exchange(client.site.request("POST", "/x", {}, large))
            assert (response.failure, response.body) == (None, large)
            assert (response.connect_s > 0) == (number == 0)
            gevent.sleep(0.05)  # for what TLS has to say after the handshake: no reason to connect again
        client.close()
        assert {line.connection for line in server.logged()} == {1}
    assert sizes == [len(large)] * 3


def test_a_name_is_sent_along_and_compared(authority: Authority) -> None:
    context = authority.server(x509.DNSName("localhost"))
    asked_for: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    with KnownServer(lambda request: Answer(), tls=context) as server:
        assert ask(client_of(server, str(authority.file), "localhost")) is None
        assert ask(client_of(server, str(authority.file))) == "TLS certificate not accepted"
        assert ask(client_of(server, verify=False)) is None
    assert asked_for == ["localhost", None, None]


def test_another_host_is_asked_for_and_compared(authority: Authority) -> None:
    """As if its name led to the address: a balancer chooses the certificate by it."""
    context = authority.server(x509.DNSName("web.example.com"))
    asked_for: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    with KnownServer(lambda request: Answer(body=request.headers["host"].encode()), tls=context) as server:
        for host, failure in (("web.example.com:1", None), ("other.example.com", "TLS certificate not accepted")):
            client = HttpClient(Site.of(server.url, str(authority.file), request_host=host), PATIENT_S, PATIENT_S)
            response = client.exchange(client.site.request("GET", "/", {}))
            assert (response.failure, response.body) == (failure, b"" if failure else host.encode())
            client.close()
    assert asked_for == ["web.example.com", "other.example.com"]


@pytest.mark.parametrize("host", [".a", "a" * 64])
def test_a_host_that_tls_cannot_ask_for(host: str) -> None:
    with pytest.raises(NotReady, match="not a host's name"):
        Site.of("https://127.0.0.1", request_host=host)


def test_another_authority(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    with KnownServer(lambda request: Answer(), tls=authority.server(ADDRESS)) as server:
        assert ask(client_of(server, str(other.file))) == "TLS certificate not accepted"
        assert ask(client_of(server, verify=True)) == "TLS certificate not accepted"
        assert server.requests == 0


def test_a_server_that_speaks_no_tls(authority: Authority) -> None:
    with KnownServer(lambda request: Answer()) as server:
        url = server.url.replace("http:", "https:")
        client = HttpClient(Site.of(url, str(authority.file)), PATIENT_S, PATIENT_S)
        assert ask(client) == "TLS failed"
        assert server.requests == 0


@pytest.mark.parametrize("idle_s", [0.4, 1.3])
def test_closed_while_idle(authority: Authority, idle_s: float) -> None:
    with KnownServer(lambda request: Answer(), idle_timeout_s=0.1, tls=authority.server(ADDRESS)) as server:
        client = client_of(server, str(authority.file))
        for _ in range(3):
            assert ask(client) is None
            gevent.sleep(idle_s)
        client.close()
        assert [line.connection for line in server.logged()] == [1, 2, 3]


def test_still_open_after_a_second(authority: Authority) -> None:
    with KnownServer(lambda request: Answer(), tls=authority.server(ADDRESS)) as server:
        client = client_of(server, str(authority.file))
        for _ in range(2):
            assert ask(client) is None
            gevent.sleep(1.2)
        assert ask(client) is None
        client.close()
        assert [line.connection for line in server.logged()] == [1, 1, 1]


def test_bytes_that_nobody_asked_for_are_no_answer_to_the_next_request(authority: Authority) -> None:
    """Sent in a record of their own, they may have been read, and not decrypted, with the answer before them."""
    stray = [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"]
    for pause_s in (0.0, 0.1):
        answer = Answer(script=[stray[0], pause_s, stray[1]])
        with KnownServer(lambda request, answer=answer: answer, tls=authority.server(ADDRESS)) as server:
            client = client_of(server, str(authority.file))
            for _ in range(5):
                response = client.exchange(client.site.request("GET", "/", {}))
                assert response.status == 200
                assert response.last_byte_s is not None and response.last_byte_s > 0
                time.sleep(0.2)  # not gevent's: the loop has no turn
            client.close()
            assert len(server.logged()) == 5


def test_time_limits(authority: Authority) -> None:
    late = Answer(script=[b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na", 1.0])
    with KnownServer(lambda request: late, tls=authority.server(ADDRESS)) as server:
        client = HttpClient(Site.of(server.url, str(authority.file)), PATIENT_S, 0.3)
        assert ask(client) == "200, then timed out"
        client.close()


def test_an_answer_cut_short_is_no_whole_one(authority: Authority) -> None:
    with KnownServer(lambda request: Answer(missing_bytes=1), tls=authority.server(ADDRESS)) as server:
        assert ask(client_of(server, str(authority.file))) == "200, then short body"


def test_a_file_that_holds_no_certificate(tmp_path: Path) -> None:
    path = tmp_path / "none.pem"
    path.write_text("nothing")
    for file in (path, tmp_path / "missing.pem"):
        with pytest.raises(NotReady, match="not a file of certificates"):
            Site.of("https://127.0.0.1", str(file))
