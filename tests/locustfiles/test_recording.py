"""What --response-times leaves on disk: known values from several processes, in the format that analysis reads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from _histograms import bucket_us

from analysis.record import RESPONSE_TIME_COLUMNS, read_process
from tests.known_server import KnownServer

from .conftest import LOCUSTFILES, OS_VARIABLES, Locust, keystone, read_csv

TIMES_MS = [0.3, 0.3, 1.5, 15.0, 105.0, 60000.0]
ROUNDS = 20

PROBE = f"""
import _preparation
import gevent
from _response_times import record_fact
from locust import User, task

class Probe(User):
    @task
    def fire(self):
        for _ in range({ROUNDS}):
            for time_ms in {TIMES_MS}:
                failure = ValueError("too slow") if time_ms > 1000 else None
                self.environment.events.request.fire(
                    request_type="GET", name="/x, y", response_time=time_ms, response_length=0, exception=failure, context={{}}
                )
            gevent.sleep(0.02)
        record_fact(self.environment, "done", True)
        gevent.sleep(100)
"""  # noqa: E501


def test_known_values_add_up_over_processes(locust: Locust, two_processes: tuple[str, ...]) -> None:
    path = locust.folder / "probe.py"
    path.write_text(PROBE)
    run = locust.run(path, "-u", "4", "-r", "100", "-t", "2s", "-s", "1", *two_processes)
    counts: Counter[tuple[str, str, str, int]] = Counter()
    for file in (run.folder / "response_times").glob("*.csv"):
        rows = read_csv(file)
        assert tuple(rows[0]) == RESPONSE_TIME_COLUMNS
        for row in rows:
            counts[row["endpoint"], row["outcome"], row["clock"], int(row["bucket_us"])] += int(row["count"])
    expected: Counter[tuple[str, str, str, int]] = Counter()
    for time_ms in TIMES_MS:
        outcome = "ValueError: too slow" if time_ms > 1000 else "success"
        expected["GET /x, y", outcome, "both", bucket_us(round(time_ms * 1000))] += 4 * ROUNDS
    assert counts == expected
    records = [read_process(file) for file in sorted((run.folder / "response_times").glob("*.json"))]
    assert len(records) == 2
    for record in records:
        assert record.facts == {"done": True}
        assert record.relative_error <= 0.005
        assert record.test_start_unix_s is not None
        assert record.test_stop_unix_s is not None
        assert 1.5 < record.test_stop_unix_s - record.test_start_unix_s < 10


CONFIGURATIONS = sorted((LOCUSTFILES.parent / "configs" / "locust").glob("*.conf"))


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=lambda config: config.stem)
def test_the_configuration_files_are_what_locust_understands(locust: Locust, config: Path) -> None:
    with KnownServer(keystone()) as server:
        arguments = ("--config", str(config), "-H", server.url, "-t", "1s")
        run = locust.finish(locust.start("keystone_auth.py", *arguments, **OS_VARIABLES))
    assert run.exit_code == 0, run.output
    assert len(server.logged("stackswarm-keystone_auth")) > 0
    recorded = config.stem != "smoke"
    assert (locust.folder / f"{config.stem}_response_times" / "local.csv").exists() == recorded
    assert (locust.folder / f"{config.stem}_stats_history.csv").exists() == recorded
