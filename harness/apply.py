"""Between runs on an external server: the operator's command, and the probe that it took."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import re
import shlex
import ssl
import subprocess
import time
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

from harness import external as external_server
from harness.experiment import External, Probe
from harness.server import ServerError, end_group, own, signals_held

LONGEST_OUTPUT_BYTES = 1_000_000
"""Of a command's output, what is kept; of a probe's answer, what is looked at."""
POLL_S = 0.05
PROBE_PAUSE_S = 0.5
REQUEST_S = 5.0
"""Longest silence of a server that is probed."""


@dataclasses.dataclass
class Operator:
    """Runs the operator's commands, remembers what took, and notes all of it."""

    variables: Mapping[str, str]
    """The environment of the commands."""
    notes: list[str] = dataclasses.field(default_factory=list)
    """What happened since the last take(), in lines; secrets are still in them."""
    applied: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Host to the command that last took there."""
    must_stop: bool = False
    """A server that is not ours alone could not bear the load."""

    def take(self) -> str:
        """The notes so far, which begin anew."""
        text, self.notes = "\n".join(self.notes), []
        return text

    def is_applied(self, external: External) -> bool:
        """Whether the server still is, as far as is known, where bring() brought it."""
        return external.apply is None or self.applied.get(external.host) == external_server.apply_command(external)

    def bring(self, external: External, scratch: Path) -> None:
        """Make the server be as the parameters say, by `apply` where that has not been done, and look that it is so.

        Raises ServerError where the command fails, takes too long, or the probe does not say what it must.
        """
        argv = external_server.apply_command(external)
        if argv is not None and self.applied.get(external.host) != argv:
            self.applied.pop(external.host, None)
            status, _ = self._run("apply", argv, external.apply_timeout, scratch)
            if status != 0:
                raise ServerError(f"apply: {shlex.join(argv)} ended with status {status}; see server/operator.log")
        self.look(external, scratch)
        if argv is not None:
            self.applied[external.host] = argv

    def look(self, external: External, scratch: Path) -> None:
        """Probe until the answer is right, for no longer than the probe's timeout. Raises ServerError."""
        probe = external.probe
        if probe is None:
            return
        deadline = time.monotonic() + probe.timeout
        while True:
            found = self._wrong(external, probe, deadline, scratch)
            if found is None:
                self.notes.append(f"probe: as it must be: {external_server.probe_words(external, probe)}")
                return
            if time.monotonic() + PROBE_PAUSE_S > deadline:
                break
            time.sleep(PROBE_PAUSE_S)
        self.applied.pop(external.host, None)
        words = external_server.probe_words(external, probe)
        self.notes.append(f"probe: {found}")
        raise ServerError(f"the probe says that the server is not as it must be: {words}; {found}")

    def _wrong(self, external: External, probe: Probe, deadline: float, scratch: Path) -> str | None:
        """What is wrong with the answer; None where nothing is."""
        left_s = max(deadline - time.monotonic(), POLL_S)
        if probe.run is None:
            authority = external_server.authority(external, self.variables)
            return _wrong_answer(external, probe, authority, min(left_s, REQUEST_S), deadline)
        argv = external_server.command(probe.run, external)
        status, printed = self._run("probe", argv, left_s, scratch)
        prints = external_server.fill(probe.prints or "", external.parameters)
        if status != 0:
            return f"it ended with status {status}"
        return None if printed.strip() == prints.strip() else "it printed something else; see server/operator.log"

    def _run(self, what: str, argv: list[str], timeout_s: float, scratch: Path) -> tuple[int, str]:
        """Run a command without a shell; its exit status and standard output. Raises ServerError.

        What it leaves running when it ends, a server for one, is the operator's. One that is broken off leaves nothing.
        """
        self.notes.append(f"{what}: {shlex.join(argv)}")
        output, errors = scratch / f"{what}.out", scratch / f"{what}.err"
        process: subprocess.Popen[bytes] | None = None
        try:
            with output.open("wb") as opened, errors.open("wb") as opened_errors, signals_held():
                # A session of its own: an interrupt reaches the harness only, which ends the whole group.
                process = subprocess.Popen(
                    argv, env=dict(self.variables), stdin=subprocess.DEVNULL, stdout=opened, stderr=opened_errors,
                    start_new_session=True,
                )  # fmt: skip
            own(scratch, [process.pid])
            self._wait(what, process, timeout_s)
        except BaseException as error:
            if process is not None:
                end_group(process, 1.0)
            elif isinstance(error, OSError | ValueError):
                reason = getattr(error, "strerror", None) or error
                raise ServerError(f"{what}: {argv[0]} cannot be started: {reason}") from error
            raise
        finally:
            own(scratch, [])
            self.notes += [text.rstrip() for text in (_text(output), _text(errors)) if text.strip()]
        self.notes.append(f"{what}: status {process.returncode}")
        return process.returncode, _text(output)

    def _wait(self, what: str, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while process.poll() is None:
            if time.monotonic() > deadline:
                self.notes.append(f"{what}: broken off after {timeout_s:.3g} s")
                raise ServerError(f"{what}: did not end within {timeout_s:.3g} s, and was broken off")
            time.sleep(POLL_S)


def _text(output: Path) -> str:
    if not output.exists():
        return ""
    with output.open("rb") as opened:
        return opened.read(LONGEST_OUTPUT_BYTES).decode("utf-8", errors="replace")


def _wrong_answer(
    external: External, probe: Probe, authority: str | None, timeout_s: float, deadline: float
) -> str | None:
    url = external_server.probe_url(external, probe)
    try:
        status, body = _get(url, authority, timeout_s, deadline)
    except ssl.SSLError as error:
        with_which = f"os_cacert or OS_CACERT, {authority}" if authority else "the system's own authorities"
        return f"no answer (TLS, with {with_which}: {getattr(error, 'verify_message', None) or error.reason})"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"no answer ({type(error).__name__})"
    if status != probe.status:
        return f"it answered {status}"
    expected = external_server.fill(probe.contains or "", external.parameters)
    return None if contains(body.decode("utf-8", errors="replace"), expected) else f"{expected!r} is not in the answer"


def _get(url: str, authority: str | None, timeout_s: float, deadline: float) -> tuple[int, bytes]:
    """Status and beginning of the body of a GET, without proxy and redirects, of which the load knows none either."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=authority)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    with contextlib.closing(connection):
        connection.request("GET", urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, "")))
        answer = connection.getresponse()
        body = b""
        while len(body) < LONGEST_OUTPUT_BYTES and time.monotonic() < deadline and (piece := answer.read1(65536)):
            body += piece
        return answer.status, body


def contains(text: str, words: str) -> bool:
    """Whether `words` stand in `text`, and are not a part of longer ones: "workers 1" is not in "workers 16"."""
    before = r"(?<![\w.-])" if re.match(r"\w", words) else ""
    after = r"(?![\w-]|\.\d)" if re.search(r"\w$", words) else ""
    return re.search(before + re.escape(words) + after, text) is not None
