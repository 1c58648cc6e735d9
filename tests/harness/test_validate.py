"""Experiment files that are wrong: every error at once, each with its line, and the word that was probably meant."""

from pathlib import Path

import pytest

from harness import configuration
from harness.configuration import ConfigurationError
from harness.decidability import comparisons, deciding_replicates, remarks
from harness.experiment import duration_s, share
from harness.parsed_file import ExperimentError
from harness.validate import read

REPOSITORY = Path(__file__).resolve().parents[2]
BAD = REPOSITORY / "tests/fixtures/bad_experiments"
GOOD = REPOSITORY / "configs/experiments/keystone-processes.yml"

EXPECTED: dict[str, list[tuple[int, str]]] = {
    "missing_parts": [
        (1, "dataset.projects: is missing"),
        (1, "dataset.users_per_project: is missing"),
        (1, "timing: is missing"),
        (3, "server.configuration: is missing"),
        (4, "load.users: is missing"),
    ],
    "not_a_mapping": [(1, "not an experiment: it must be a mapping")],
    "not_yaml": [(4, "not YAML: expected ',' or '}'")],
    "twice": [(4, 'not YAML: found duplicate key "load"')],
    "unbuilt_features": [
        (3, "reference: there is no 'keystone-rally-2041'; there are: "),
        (8, "events.0.at: the steady state is over after 3 s"),
        (8, "events: they leave a server changed for the next run; write order: {server: per_run}"),
        (9, "placement: not built yet"),
    ],
    "wrong_external": [
        (4, "server.system: is for a server that the harness starts, and this one is external"),
        (6, "server.external.rate_ceiling: is missing; 192.0.2.1 is not loopback, and load on it needs one, as in"),
        (7, "server.external.parameters.unseen: [3] is not text, a number, true or false"),
        (8, "server.external.apply: '{parameters hidden}': a placeholder is written {parameters.NAME}"),
        (8, "server.external.apply: there is no parameter 'wokers'; there are: workers, hidden, unseen; did you"),
        (9, "server.external.apply_timeout: 5 is not a duration; write it with a unit"),
        (10, "server.external.probe.contains: is empty, and every answer contains that"),
        (10, "server.external.probe.get: 'status' is no path and no URL; write it as in /status"),
        (10, "server.external.probe.prints: does not belong to get"),
        (11, "dataset: is for a server that the harness starts; name the users by server.external.users_csv"),
        (14, "factors.server.external.parameters.hidden: server.external.apply does not use {parameters.hidden}, so"),
    ],
    "wrong_external_load": [(5, "load: offers 60 requests a second, above server.external.rate_ceiling, 50/s")],
    "wrong_load": [
        (5, "load.max_in_flight: is missing; the open workload model needs it"),
        (7, "load.users: belongs to the closed workload model, and this one is open"),
        (8, "load.think_time: belongs to the closed workload model, and this one is open"),
        (9, "load.arrival_rate_rps: Input should be greater than 0"),
        (10, "load.arrival_process: 'poison' is not 'constant' or 'poisson'; did you mean poisson?"),
        (11, "load.requests: belongs to the closed workload model, and this one is open"),
        (11, "load.requests: name either it or timing.steady_state, never both"),
    ],
    "wrong_numbers": [
        (7, "load.arrival_rate_rps: Input should be a valid number"),
        (8, "load.max_in_flight: 0 is below 1"),
    ],
    "wrong_schedules": [
        (5, "load.arrival_steps: name either it or load.arrival_rate_rps, never both"),
        (9, "load.arrival_rates: name either it or load.arrival_rate_rps, never both"),
        (9, "load.arrival_rates: no-such-file.csv cannot be read; name a file, relative to the experiment's"),
        (13, "factors.load.arrival_steps: level '10:2s,20:5.5s': lasts 7.5 s, which leaves 6.5 s of steady state"),
        (14, "factors.load.arrival_steps: level '10:2s;20:4s': '10:2s;20:4s' is not RATE:TIME or RATE..RATE:TIME"),
        (15, "factors.load.arrival_steps: level '0:6s': no rate above 0"),
    ],
    "unknown_keys": [
        (6, "server.paramters: there is no such key; did you mean parameters?"),
        (8, "load.user: there is no such key; did you mean users?"),
        (8, "load.users: is missing"),
        (10, "replicats: there is no such key; did you mean replicates?"),
    ],
    "wrong_factors": [
        (7, "factors.server.parameters.proceses: this cannot be varied; did you mean server.parameters.processes?"),
        (8, "factors.server.parameters.cache: level 'memcache': server.parameters.cache: 'memcache' is not one of"),
        (9, "factors.load.users: write its levels as a list"),
        (10, "factors.timing.warm_up: this cannot be varied"),
        (11, "factors.load.processes: levels must be plain values, each once"),
    ],
    "wrong_names": [
        (2, "workload: there is no 'keystone_auht'; there are: "),
        (3, "server.configuration: there is no 'uwsgy'; there are: apache, queens, uwsgi; did you mean uwsgi?"),
        (4, "dataset.users_per_project: is missing"),
        (4, "dataset.users_per_projects: keystone has no such key; did you mean users_per_project?"),
        (6, "primary.metric: there is no 'thoughput'"),
        (7, "options.keystone_auth: the workload is keystone_auht"),
        (7, "options.keystone_validate: the workload is keystone_auht"),
    ],
    "wrong_objectives": [
        (9, "objectives.1: 'p95(respnse_time) < 2s': there is no time 'respnse_time'; did you mean response_time?"),
        (10, "objectives.2: 'failure_ratio < 1s': '1s' is not a limit here; write it as in 5%, 5"),
        (11, "objectives.3: 'change(throughput) > -5%' is relative to the baseline, and the file names none"),
        (14, "abort_when.1: 'server_cpu > 3': a run in progress knows its times, counts, failures and throughput"),
    ],
    "wrong_selection": [
        (9, "baseline: 4 is not a level of server.parameters.processes; it has [1, 2]"),
        (9, "baseline: server.parameters.cache is not a factor"),
        (10, "primary.at: load.user is not a factor; did you mean load.users?"),
        (10, "primary.margin: 5 is not a share between 0 and 100 %"),
    ],
    "wrong_values": [
        (6, "server.parameters.hash_rounds: 40 is not a whole number from 4 to 14"),
        (6, "server.parameters.processes: 3 is not one of 1, 2, 4"),
        (6, "server.parameters.token_provider: 'fernt' is not one of fernet, jws; did you mean fernet?"),
        (7, "dataset.projects: 0 is below 1"),
        (8, "load.think_time: 2 is not a duration; write it with a unit"),
        (8, "load.users: '4' is not a whole number"),
        (9, "timing.steady_state: steady_state is recorded by the second"),
        (9, "timing.warm_up: 1 is not a duration"),
        (10, "replicates: 0 is below 1"),
        (11, "order.policy: 'randomised_blocks' is not 'randomized_blocks'; did you mean randomized_blocks?"),
        (11, "order.server: 'per_blok' is not 'per_block' or 'per_run'; did you mean per_block?"),
    ],
}


def problems(path: Path, *overrides: str) -> list[tuple[int, str]]:
    with pytest.raises(ExperimentError) as caught:
        read(path, overrides)
    return [(problem.line, problem.message) for problem in caught.value.problems]


def test_every_bad_file_has_its_expectation() -> None:
    assert {path.stem for path in BAD.glob("*.yml")} == set(EXPECTED)
    assert len(EXPECTED) >= 10


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_all_problems_of_a_file_are_reported_at_once_with_their_lines(name: str) -> None:
    found = problems(BAD / f"{name}.yml")
    assert [line for line, _ in found] == [line for line, _ in EXPECTED[name]]
    for (_, message), (_, beginning) in zip(found, EXPECTED[name], strict=True):
        assert message.startswith(beginning)


@pytest.mark.parametrize("path", sorted((REPOSITORY / "configs/experiments").glob("*.yml")), ids=lambda path: path.stem)
def test_every_experiment_of_the_repository_is_valid(path: Path) -> None:
    assert read(path).name == path.stem


def test_a_missing_file_is_one_problem() -> None:
    assert problems(Path("no/such/file.yml")) == [(1, "cannot be read: No such file or directory")]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("load.requests=100", "load.requests: name either it or timing.steady_state, never both"),
        ("load.processes=5", "load.processes: 5 processes cannot share 4 users"),
        ("load.users=8", "load.users: the file varies it, so setting it has no effect; set factors.load.users instead"),
        ("baseline.server.parameters.processes=1.0", "baseline: 1.0 is not a level of server.parameters.processes"),
        ("baseline.server.parameters.processes=true", "baseline: True is not a level of server.parameters.processes"),
        ("primary.at.load.users=16.0", "primary.at: 16.0 is not a level of load.users"),
        ("factors.load.processes=[1, 32]", "load.processes: 32 processes cannot share 16 users"),
        ("load.usres=3", "load.usres: there is no such key; did you mean users?"),
        ("load.users", "'load.users' is not PATH=VALUE"),
        ("load.users=[", "'load.users=[': the value is not YAML"),
        ("factors.load.users=[4, many]", "factors.load.users: level 'many': load.users: 'many' is not a whole number"),
        ("options.keystone_auth={token_pool: 5}", "options.keystone_auth: there is no option 'token_pool'"),
        (
            "options.keystone_auth={scope: projct}",
            "options.keystone_auth.scope: there is no 'projct'; there are: project,",
        ),
        ("options.keystone_auth={catalog: 1}", "options.keystone_auth.catalog: there is no '1'; there are: yes, no"),
        ("options.keystone_auth={os_cacert: ca.pem}", "options.keystone_auth: there is no option 'os_cacert'"),
        ("options.keystone_auth={users: 5}", "options.keystone_auth: there is no option 'users'"),
        ("server.parameters.hash_rounds=3", "server.parameters.hash_rounds: 3 is not a whole number from 4 to 14"),
    ],
)
def test_a_wrong_override_is_blamed_on_the_override(override: str, message: str) -> None:
    assert any(line == 0 and found.startswith(message) for line, found in problems(GOOD, override))


@pytest.mark.parametrize("catalog", ["yes", "no", "true", "false"])
def test_options_of_the_workload(catalog: str) -> None:
    options = f"options={{keystone_auth: {{scope: system, auth_method: token, catalog: {catalog}}}}}"
    read(GOOD, ("factors.options.keystone_auth.scope=[system, unscoped]", options))


def test_overrides_change_the_experiment_and_are_remembered() -> None:
    file = read(
        GOOD,
        ("replicates=6", "factors.load.users=[2, 16]", "primary.margin=3%", "baseline.server.parameters.processes=2"),
    )
    assert file.experiment.replicates == 6
    assert file.experiment.factors["load.users"] == [2, 16]
    assert file.experiment.primary.margin == pytest.approx(0.03)
    assert file.experiment.baseline == {"server.parameters.processes": 2}
    assert file.overrides[0] == "replicates=6"


NO_FACTORS = ("factors={}", "baseline={}", "primary={}")


def with_steps(steps: str, timing: str) -> tuple[str, ...]:
    return (*NO_FACTORS, f"load={{model: open, arrival_steps: '{steps}', max_in_flight: 9}}", f"timing={timing}")


@pytest.mark.parametrize(
    ("steps", "timing", "steady_state_s"),
    [
        ("10:2s,10..40:6s", "{warm_up: 2s, steady_state: 6s}", 6),
        ("10:2s,10..40:6s", "{warm_up: 2s}", 6),
        ("10:0.7s,10:0.1s,10:4.2s", "{warm_up: 2s}", 3),
        ("10..20:2h", "{warm_up: 1m}", 7140),
    ],
)
def test_a_schedule_is_as_long_as_the_run(steps: str, timing: str, steady_state_s: float) -> None:
    file = read(GOOD, with_steps(steps, timing))
    assert file.experiment.timing.steady_state == steady_state_s
    assert file.at({}).timing.steady_state == steady_state_s


@pytest.mark.parametrize(
    ("steps", "timing", "message"),
    [
        (
            "10:9s",
            "{warm_up: 2s, steady_state: 6s}",
            "lasts 9 s, and the run's warm-up and steady state 8 s; it begins",
        ),
        ("10:9.5s", "{warm_up: 2s}", "lasts 9.5 s, which leaves 7.5 s of steady state after timing.warm_up; it has to"),
        ("10:2s", "{warm_up: 2s}", "lasts 2 s, which leaves 0 s of steady state"),
        ("10", "{warm_up: 1s}", "'10' is not RATE:TIME or RATE..RATE:TIME, such as 10:30s or 10..100:1m"),
        ("10:2", "{warm_up: 1}", None),
    ],
)
def test_a_schedule_of_another_length_is_one_problem(steps: str, timing: str, message: str | None) -> None:
    ((_, found),) = problems(GOOD, *with_steps(steps, timing))
    assert found.startswith("timing.warm_up: 1 is not" if message is None else f"load.arrival_steps: {message}")


def test_all_levels_have_one_length() -> None:
    levels = "factors={load.arrival_steps: ['5:6s', '5..9:6s', '5:7s']}"
    changes = (*with_steps("", "{warm_up: 2s}")[1:], levels)
    assert problems(GOOD, *changes) == [
        (0, "factors.load.arrival_steps: level '5:7s': lasts 7 s, and the run's warm-up and steady state 6 s; "
            "it begins with the run, so they must be equal")
    ]  # fmt: skip


def test_a_rate_file_lies_beside_the_experiment(tmp_path: Path) -> None:
    file = tmp_path / "mine.yml"
    file.write_text(GOOD.read_text())
    model = "load={model: open, arrival_rates: rates/peak.csv, max_in_flight: 9}"
    changes = (*NO_FACTORS, model, "timing={warm_up: 2s}")
    (tmp_path / "rates").mkdir()
    (tmp_path / "rates/peak.csv").write_text("seconds,rate_rps\n2,10\n6,2O\n")
    ((_, message),) = problems(file, *changes)
    assert message == "load.arrival_rates: rates/peak.csv: line 3: '6,2O' is not two numbers, such as 30,10.5"
    text = "seconds,rate_rps\n2,10\n6,20\n"
    (tmp_path / "rates/peak.csv").write_text(text)
    found = read(file, changes)
    assert found.rate_files == {"rates/peak.csv": text}
    assert found.experiment.timing.steady_state == 6
    assert read(GOOD, changes, {"rates/peak.csv": text}).rate_files == {"rates/peak.csv": text}


def test_a_file_that_is_nested_too_deeply(tmp_path: Path) -> None:
    file = tmp_path / "deep.yml"
    file.write_text("[" * 3000)
    assert problems(file) == [(1, "not YAML that can be read: nested too deeply")]


def test_a_configuration_without_what_its_system_needs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "keystone/bare"
    folder.mkdir(parents=True)
    declaration = "about: bare\nparameters: {processes: {about: p, default: 1, values: [1, 2]}}\n"
    (folder / "configuration.yml").write_text(declaration)
    monkeypatch.setattr(configuration, "SERVERS_FOLDER", tmp_path)
    lacking = ["the parameter cache", "the parameter hash_rounds", "the parameter token_provider"]
    wanted = f"keystone/bare lacks {', '.join(lacking)}, the template uwsgi.ini.j2 or httpd.conf.j2"
    changes = ("server={system: keystone, configuration: bare, parameters: {processes: 1}}",)
    assert (0, f"server.configuration: {wanted}") in problems(GOOD, *changes)
    (folder / "configuration.yml").write_text("about: [")
    with pytest.raises(ConfigurationError, match=r"bare/configuration\.yml: "):
        read(GOOD, changes)


def test_options_of_the_locustfile_are_known_by_asking_it() -> None:
    changes = ("workload=keystone_validate", "options={keystone_validate: {token_pool: 5}}")
    assert read(GOOD, changes).experiment.options == {"keystone_validate": {"token_pool": 5}}
    wrong = ("workload=keystone_validate", "options={keystone_validate: {token_pol: 5}}")
    ((line, message),) = problems(GOOD, *wrong)
    assert line == 0
    assert message.startswith("options.keystone_validate: there is no option 'token_pol'; there are: caller, catalog, ")
    assert message.endswith("token_pool; did you mean token_pool?")


def test_an_unquoted_null_is_the_cache_of_that_name() -> None:
    file = read(GOOD, ("server.parameters.cache=null",))
    assert file.experiment.server.parameters["cache"] == "null"


def test_a_treatment_is_put_into_the_experiment() -> None:
    experiment = read(GOOD).at({"server.parameters.processes": 2, "load.users": 4})
    assert (experiment.server.parameters["processes"], experiment.load.users) == (2, 4)


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("2s", 2), ("1.5m", 90), ("1h", 3600), (" 3 s ", 3)])
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["2", "2 sec", "-1s", 2, None, "1s 2s", ""])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration_s(text)


@pytest.mark.parametrize("value", ["0%", "100%", 0.0, 1.0, 5, "five"])
def test_what_is_no_share(value: object) -> None:
    with pytest.raises(ValueError, match="not a share"):
        share(value)


@pytest.mark.parametrize(("m", "replicates"), [(1, 4), (2, 5), (6, 5), (7, 6), (23, 6), (24, 7)])
def test_replicates_that_an_exact_interval_takes(m: int, replicates: int) -> None:
    assert deciding_replicates(m) == replicates


@pytest.mark.parametrize(
    ("overrides", "m"),
    [((), 1), (("primary.at={}",), 2), (("baseline={}",), 0), (("factors.server.parameters.processes=[1, 2, 4]",), 2)],
)
def test_number_of_comparisons(overrides: tuple[str, ...], m: int) -> None:
    assert comparisons(read(GOOD, overrides).experiment) == m


def test_a_plan_that_cannot_decide_says_so() -> None:
    assert remarks(read(GOOD).experiment) == []
    assert "cannot decide" in remarks(read(GOOD, ("replicates=3",)).experiment)[0]
    assert "no verdict" in remarks(read(GOOD, ("baseline={}",)).experiment)[0]


@pytest.mark.parametrize(
    ("objective", "replicates", "remark"),
    [
        ("p95(response_time) < 2s", 7, "over 4 treatments they need at least 8 replicates, and it has 7"),
        ("p95(response_time) < 2s", 8, None),
        ("count(response_time > 1s) < 5", 5, None),
        ("change(throughput) > -5%", 5, None),
    ],
)
def test_a_plan_that_cannot_decide_on_its_objectives_says_so(
    objective: str, replicates: int, remark: str | None
) -> None:
    file = read(GOOD, (f"replicates={replicates}", f"objectives=['{objective}']"))
    assert file.experiment.objectives == [objective]
    found = remarks(file.experiment)
    assert (len(found), remark is None or remark in found[0]) == (0 if remark is None else 1, True)
