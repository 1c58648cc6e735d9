"""Secrets in names and messages. Pure, standard library only."""

from __future__ import annotations

import re

REDACTED = "[redacted]"

_SUSPECT = re.compile(
    r"token|pass|pwd|secret|key|author|credential|signature|sess|jwt|cookie|bearer|basic|gAAAA|eyJ|AKIA|@",
    re.IGNORECASE,
)
_ENDED = r"[^\s&;,\"'#<>(){}\\]"
_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"gAAAA[A-Za-z0-9_=%-]{8,}"), REDACTED),  # Fernet, as Keystone issues it
    (re.compile(r"eyJ[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*){0,2}"), REDACTED),  # JSON Web Token
    (re.compile(r"AKIA[0-9A-Z]{12,}"), REDACTED),
    (re.compile(r"://[^\s/@\"'<>]{1,300}@"), f"://{REDACTED}@"),
    (re.compile(r"(?<![^\s\"'(=,])[^\s/:@\"'(=,]{1,100}:[^\s/@\"']{1,200}@(?=[\w\[])"), f"{REDACTED}@"),
    (re.compile(r"\b(bearer|basic)\s+(?!\[redacted\])[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1 {REDACTED}"),
    (re.compile(
        r"((?:token|passw(?:or)?d|passphrase|pwd|secret|api[-_]?key|access[-_]?key|private[-_]?key|authorization|"
        r"credentials?|signature|session[-_]?id|sessid|jwt|cookie)[\w.-]{0,20}[\"']?\s{0,2}(?:=|:|%3d|%3a)\s{0,2}[\"']?)"
        rf"(?!\[redacted\]|bearer |basic ){_ENDED}+", re.IGNORECASE), rf"\1{REDACTED}"),
    (re.compile(r"(/tokens/)(?!\[redacted\])[A-Za-z0-9_.=%-]{16,}"), rf"\1{REDACTED}"),
)  # fmt: skip


def redact(text: str) -> str:
    """`text` without what looks like a secret.

    >>> redact("/v3?token=abc&page=2")
    '/v3?token=[redacted]&page=2'
    """
    if not _SUSPECT.search(text):
        return text
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text
