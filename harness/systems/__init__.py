"""One module a system: what to install, how to prepare it, which processes it is, when it is ready."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pydantic

from harness.configuration import Configuration, Value
from harness.server import Server
from harness.systems import keystone, nginx

Report = Callable[[str], None]


class System(Protocol):
    """What a module of this package has."""

    @property
    def Dataset(self) -> type[pydantic.BaseModel]:
        """The keys of the experiment's `dataset`."""

    @property
    def NEEDS_PARAMETERS(self) -> tuple[str, ...]:
        """Parameters that each configuration of the system must declare."""

    @property
    def NEEDS_TEMPLATES(self) -> tuple[str, ...]:
        """Templates that each configuration must have, in its own folder or the system's."""

    @property
    def FIRST_START_S(self) -> float:
        """First guess of how long a start takes, in seconds; a run replaces it by what it sees."""

    @property
    def FIRST_RATE_RPS(self) -> float:
        """First guess of answers a second, for the length of a budget."""

    def processes(self, configuration: Configuration, parameters: dict[str, Value]) -> list[str]:
        """Names of the processes that server() starts, in that order."""

    def check_limits(self, parameters: dict[str, Value], slots: int) -> None:
        """Raise ServerError where this machine cannot run a server for `slots` requests at a time."""

    def prepare(
        self, configuration: Configuration, parameters: dict[str, Value], dataset: dict[str, Any], report: Report
    ) -> Path:
        """Install the system and build its prepared state, unless both exist; return the state's folder."""

    def server(
        self, prepared: Path, scratch: Path, configuration: Configuration, parameters: dict[str, Value]
    ) -> Server:
        """Copy the prepared state into `scratch` and describe the server to start there."""


SYSTEMS: dict[str, System] = {"keystone": keystone, "nginx": nginx}
