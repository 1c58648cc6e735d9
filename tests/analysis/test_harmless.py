from __future__ import annotations

import time

import pytest

from analysis.importers.harmless import harmless
from analysis.importers.oddities import Oddities
from analysis.importers.redaction import redact


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/v3?token=abc&page=2", "/v3?token=[redacted]&page=2"),
        ("/v3?page=2&access_token=abc", "/v3?page=2&access_token=[redacted]"),
        ("/login?user=bob&password=p%40ss#top", "/login?user=bob&password=[redacted]#top"),
        ("/x?api_key=1&API-KEY=2", "/x?api_key=[redacted]&API-KEY=[redacted]"),
        ("/x%3Ftoken%3Dabc", "/x%3Ftoken%3D[redacted]"),
        ("http://bob:hunter2@host/v3", "http://[redacted]@host/v3"),
        ("https://ghp_abcdef@host/v3", "https://[redacted]@host/v3"),
        ("connect to bob:hunter2@10.0.0.1 failed", "connect to [redacted]@10.0.0.1 failed"),
        ("GET /tokens/gAAAAABnAbCdEfGhIjKlMnOp-_12==", "GET /tokens/[redacted]"),
        ("/v3/auth/tokens/0123456789abcdef0123456789abcdef", "/v3/auth/tokens/[redacted]"),
        ("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl", "[redacted]"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer [redacted]"),
        ("X-Auth-Token: abc", "X-Auth-Token: [redacted]"),
        ('{"password": "hunter2", "a": 1}', '{"password": "[redacted]", "a": 1}'),
        ("AKIAIOSFODNN7EXAMPLE", "[redacted]"),
    ],
)
def test_secrets_are_taken_out_and_the_rest_stays(text: str, expected: str) -> None:
    assert redact(text) == expected
    assert redact(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "POST /v3/auth/tokens",
        "HTTPError('401 Client Error: Unauthorized for url: http://127.0.0.1:39445/v3')",
        "ConnectionRefusedError(111, 'Connection refused')",
        "GET /users/[id]/password",
        "12:30 at the office",
        "",
    ],
)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "expected", "said"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0", "formula"),
        ("@SUM(1)", "'@SUM(1)", "formula"),
        ("a\x1b[31mb", "a\\x1b[31mb", "control characters"),
        ("a\u202eb", "a\\u202eb", "control characters"),
        ("a\nb", "a b", "control characters"),
        ("x" * 300, "x" * 200 + "… (300 characters)", "longer than 200"),
    ],
)
def test_hostile_texts_are_made_harmless_and_said(text: str, expected: str, said: str) -> None:
    oddities = Oddities(1)
    assert harmless(text, "a.csv", 7, oddities) == expected
    (oddity,) = oddities.found()
    assert oddity.file == "a.csv:7"
    assert said in oddity.what


def test_a_secret_beyond_the_cut_does_not_stay_in_part() -> None:
    text = "/" + "a" * 150 + "?token=" + "s3cr3t" * 400
    assert "s3cr3t" not in harmless(text, "a.csv", 1, Oddities(1))


@pytest.mark.parametrize("part", ["a", "a:", "token=", "://", "a@", "bearer ", "eyJ", "\x1b"])
def test_long_texts_take_no_time(part: str) -> None:
    begun = time.process_time()
    harmless(part * 100_000, "a.csv", 1, Oddities(1))
    assert time.process_time() - begun < 2


def test_equal_oddities_are_one_with_its_lines() -> None:
    oddities = Oddities(3)
    for line in range(2, 1002):
        oddities.note("a.csv", "odd", line)
    oddities.note("token=abc\x1b.csv", "as a whole")
    first, second = oddities.found()
    assert (first.run, first.file) == (3, "a.csv:2")
    assert first.what == "odd (1000 times: also in line 3, 4, 5, 6, 7 and 994 more)"
    assert (second.file, second.what) == ("token=[redacted]", "as a whole")
