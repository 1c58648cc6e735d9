from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import decide, load
from tests.analysis import synthetic


@pytest.fixture(scope="session")
def demo_samples(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, list[synthetic.Sample]]]:
    """The demo experiment with its raw samples, for reading only."""
    folder = tmp_path_factory.mktemp("demo") / "experiment"
    return folder, synthetic.make(folder)


@pytest.fixture(scope="session")
def demo(demo_samples: tuple[Path, dict[int, list[synthetic.Sample]]]) -> Path:
    return demo_samples[0]


@pytest.fixture(scope="session")
def demo_analysis(demo: Path) -> decide.Analysis:
    return decide.analyse(load.load_experiment(demo))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo experiment with one replicate, for reading only: enough where no interval is looked at."""
    folder = tmp_path_factory.mktemp("small") / "experiment"
    synthetic.make(folder, synthetic.Plan(replicates=1))
    return folder


@pytest.fixture
def small_copy(small: Path, tmp_path: Path) -> Path:
    """The small experiment, to be damaged."""
    return Path(shutil.copytree(small, tmp_path / "experiment"))


@pytest.fixture
def demo_copy(demo: Path, tmp_path: Path) -> Path:
    """The demo experiment, to be damaged."""
    return Path(shutil.copytree(demo, tmp_path / "experiment"))


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """make(replicates=3, …) writes an experiment and returns its folder."""

    def made(**changes: object) -> Path:
        folder = tmp_path / f"experiment-{len(list(tmp_path.iterdir()))}"
        synthetic.make(folder, synthetic.Plan(**changes))  # type: ignore[arg-type]
        return folder

    return made
