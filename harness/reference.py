"""Published results, configs/reference/NAME.yml, which a report prints beside ours."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic
import ruamel.yaml

from analysis.record import REFERENCE_QUANTITIES, REFERENCE_SUMMARIES, Level, Treatment
from harness.configuration import ConfigurationError
from harness.install import REPOSITORY
from harness.suggestions import there_is_no

FOLDER = REPOSITORY / "configs/reference"


def _one_of(*known: str) -> pydantic.AfterValidator:
    def check(name: str) -> str:
        if name not in known:
            raise ValueError(there_is_no(name, known))
        return name

    return pydantic.AfterValidator(check)


class Model(pydantic.BaseModel):
    """What all parts share: no unknown key."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Column(Model):
    """A column of every table."""

    head: str
    quantity: Annotated[str, _one_of(*REFERENCE_QUANTITIES)] | None = None
    """What is to be measured here; without it the column holds text, the same for both."""
    at: Treatment = {}
    """Levels of ours that belong to the column, by dotted path."""


class Row(Model):
    """One row: a configuration that was measured."""

    head: str
    at: Treatment = {}
    published: list[Level]
    """One for each column."""


class Table(Model):
    """One table."""

    title: str
    context: str | None = None
    """What is printed above it."""
    at: Treatment = {}
    rows: list[Row]


class Reference(Model):
    """A published document's tables. The levels that a cell of ours belongs to are those of table, row and column."""

    title: str
    url: Annotated[str, pydantic.Field(pattern="^https?://")]
    hardware: str
    software: str
    remarks: list[str] = []
    """What cannot be as it was, in sentences."""
    summary: Annotated[str, _one_of(*REFERENCE_SUMMARIES)] | None = None
    """How the document sums its tables up."""
    columns: list[Column]
    tables: list[Table]

    @pydantic.model_validator(mode="after")
    def _whole_rows(self) -> Reference:
        for table in self.tables:
            for row in table.rows:
                if len(row.published) != len(self.columns):
                    raise ValueError(
                        f"table {table.title!r}, row {row.head!r}: {len(row.published)} values for "
                        f"{len(self.columns)} columns"
                    )
        return self


def names() -> list[str]:
    """Names of the published results that there are."""
    return sorted(path.stem for path in FOLDER.glob("*.yml"))


def read(name: str) -> dict[str, Any]:
    """The contents of configs/reference/NAME.yml, checked.

    Raises KeyError with a sentence where there is none of that name, and ConfigurationError for a file that is wrong.
    """
    if name not in names():
        raise KeyError(there_is_no(name, names()))
    path = FOLDER / f"{name}.yml"
    try:
        return Reference.model_validate(ruamel.yaml.YAML(typ="safe").load(path)).model_dump()
    except (ruamel.yaml.error.YAMLError, pydantic.ValidationError) as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[:4])
        raise ConfigurationError(f"{path}: {reason}. Mend it as the others are.") from error
