"""nginx as an ingress: how fast does it answer GET for one host and path?

Each Locust user is one client with one connection (`--connection new`: one for each request), which asks for `--path`
again and again and waits `--think-time` seconds (default 0) between an answer and the next request.

    locust -f nginx_ingress.py --host http://127.0.0.1:8080 --request-host web.example.com -u 100 -r 100 -t 1m

`--host` says where requests go, and may carry a path, which goes before `--path`. `--request-host` says what they ask
for, where one address answers for many hosts: it is their Host and, under TLS, whose certificate is asked for and
compared, as if the host's name led to that address. `--ca-file` is the certificate authority; without it: the system's.

Success is `--expected-status` (default 200) with, where that is given, `--expected-bytes` of body. Everything else is a
failure, named by its status ("502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"), by what is wrong
with the body ("unexpected size"; "200, then short body" where it ends too early) or by what happened to the connection
("connection refused", "connection reset", "connection closed without a response", "timed out": after 60 s, "TLS
certificate not accepted"). What happens within an answer stands behind its status: "200, then connection reset".
Redirects are not followed, nothing is sent twice, and no answer is decompressed.

Before the load one connection is opened, and closed without a request, so that a server's log and counters hold the
load's requests alone. Where nobody listens or TLS fails, Locust ends with one message and exit code 2.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import dataclasses
import re
import ssl

import _preparation
from _errors import HostUnknown, NotReady
from _http import HttpLoadUser, status_words
from _http_client import HttpClient, Request, Site, describe, read_request_host
from _http_options import certificates_file, keeps_connections
from _http_parser import Response
from _load_user import LoadUser
from _options import checked, option
from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

HEADERS = {"User-Agent": "stackswarm-nginx_ingress", "Accept": "*/*"}
UNEXPECTED_SIZE = "unexpected size"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the options ask for."""

    site: Site
    path: str
    status: int
    """Of a success."""
    size: int | None
    """Bytes of a success' body; None: any."""


class NginxIngress(LoadUser, HttpLoadUser):
    """Asks for one path, again and again."""

    plan: Plan
    get: Request

    def make_request(self) -> None:
        """One GET."""
        self.ask(self.get, self.plan.path, self.judge)

    def judge(self, response: Response) -> str | None:
        """What a whole response is worth."""
        plan = self.plan
        if response.status != plan.status:
            return status_words(response.status)
        return None if plan.size in (None, len(response.body)) else UNEXPECTED_SIZE


def read_plan(environment: Environment) -> Plan:
    """Read the options. Raises NotReady where one is wrong, or two do not go together."""
    host, authority = environment.host, option(environment, "ca_file")
    if not host:
        raise HostUnknown("Where is the server? Give --host, such as http://127.0.0.1:8080.")
    if authority and not host.lower().startswith("https:"):
        raise NotReady("--ca-file is for a --host that begins with https:, and this one does not.")
    size = option(environment, "expected_bytes")
    try:
        path = read_path(str(option(environment, "path") or "/"))
        status = read_status(str(option(environment, "expected_status") or "200"))
        bytes_ = None if size in (None, "") else read_size(str(size))
    except ValueError as error:
        raise NotReady(f"The options of nginx_ingress: {error}.") from None
    request_host = str(option(environment, "request_host") or "")
    return Plan(Site.of(host, authority or True, keeps_connections(environment), request_host), path, status, bytes_)


def read_path(text: str) -> str:
    """What is asked for, with its query. Raises ValueError for anything that no request can ask for."""
    if not re.fullmatch(r"/[!-\"$-~]*", text):
        raise ValueError(f"{text!r} is not a path: it begins with /, and is ASCII without spaces and #")
    return text


def read_status(text: str) -> int:
    """The status of a final answer. Raises ValueError for anything else."""
    if not re.fullmatch(r"[2-5][0-9][0-9]", text):
        raise ValueError(f"{text!r} is not a status from 200 to 599")
    return int(text)


def read_size(text: str) -> int:
    """A whole number of bytes. Raises ValueError for anything else."""
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise ValueError(f"{text!r} is not a number of bytes, such as 0 or 1024")
    return int(text)


def read_host(text: str) -> str:
    """As read_request_host(), which does not say what was given, for that may be a secret there."""
    try:
        return read_request_host(text)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


def check(environment: Environment) -> None:
    """Open one connection, and ask nothing. Raises NotReady where that fails."""
    site = read_plan(environment).site
    client = HttpClient(site, NginxIngress.connect_timeout_s)
    try:
        client.open()
    except OSError as error:
        raise NotReady(refusal(site, error)) from None
    finally:
        client.close()


def refusal(site: Site, error: OSError) -> str:
    """Why no connection could be opened, and what to do."""
    where = f"{site.scheme}://{site.authority}"
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        return (
            f"{where}: {describe(error)}: {why}. It must be for {site.tls_name} (--request-host, or else --host), and "
            "signed by the authority of --ca-file, or else one of the system's."
        )
    if isinstance(error, ssl.SSLError):
        return f"{where}: {describe(error)} ({error.reason or type(error).__name__}). Does this port speak TLS?"
    return f"Nobody answers at {where}: {describe(error)}. Is the address right, and the server up?"


def prepare(environment: Environment) -> None:
    """Make the request, once for the whole process. Raises NotReady."""
    plan = read_plan(environment)
    NginxIngress.plan, NginxIngress.site = plan, plan.site
    NginxIngress.get = plan.site.request("GET", plan.path, HEADERS)


@events.init_command_line_parser.add_listener
def _add_options(parser: LocustArgumentParser) -> None:
    parser.add_argument(
        "--request-host",
        type=checked(read_host),
        metavar="NAME",
        env_var="STACKSWARM_REQUEST_HOST",
        help="nginx_ingress: what requests ask --host for: their Host and, under TLS, the name in the certificate. "
        "Default: the host of --host.",
    )
    parser.add_argument(
        "--path",
        type=checked(read_path),
        metavar="PATH",
        default="/",
        env_var="STACKSWARM_PATH",
        help="nginx_ingress: what is asked for, with its query. Default /.",
    )
    parser.add_argument(
        "--expected-status",
        type=checked(read_status),
        metavar="STATUS",
        default="200",
        env_var="STACKSWARM_EXPECTED_STATUS",
        help="nginx_ingress: the status of a success. Default 200.",
    )
    parser.add_argument(
        "--expected-bytes",
        type=checked(read_size),
        metavar="N",
        env_var="STACKSWARM_EXPECTED_BYTES",
        help="nginx_ingress: how long the body of a success is. Default: any length.",
    )
    parser.add_argument(
        "--ca-file",
        type=certificates_file,
        metavar="FILE",
        env_var="STACKSWARM_CA_FILE",
        include_in_web_ui=False,
        help="nginx_ingress: certificate authority that an https --host is checked with. Default: the system's.",
    )


OPTIONS = ("request_host", "path", "expected_status", "expected_bytes", "ca_file", "connection")
_preparation.before_load(NginxIngress, check, prepare, OPTIONS)
