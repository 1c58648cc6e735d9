"""What the schema says of a document, every error in words that fit a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pydantic

from harness.experiment import RATES, Experiment, Model
from harness.parsed_file import Document, Keys
from harness.suggestions import did_you_mean

NOT_BUILT: dict[Keys, str] = {
    ("placement",): "CPU affinity",
}
"""Keys of the schema whose feature does not exist yet. They are refused, not ignored."""

BUDGETS = ("requests", "requests_per_user")
"""Keys of `load` that stand in place of timing.steady_state."""

LOAD_KEYS: dict[str, dict[str, tuple[str, ...]]] = {
    "closed": {"needs": ("users",), "may have": ("think_time", *BUDGETS)},
    "open": {"needs": ("max_in_flight",), "may have": (*RATES, "arrival_process", "max_lateness")},
}


def load_problems(document: Document) -> Iterator[tuple[Keys, str]]:
    """Keys of `load` and `timing` that the workload model needs, or that mean nothing in it."""
    load, timing = document.get("load"), document.get("timing")
    if not isinstance(load, dict) or (model := load.get("model", "closed")) not in LOAD_KEYS:
        return
    own = LOAD_KEYS[model]
    other = next(name for name in LOAD_KEYS if name != model)
    for key in own["needs"]:
        if key not in load:
            yield ("load", key), f"load.{key}: is missing; the {model} workload model needs it"
    for key in (*LOAD_KEYS[other]["needs"], *LOAD_KEYS[other]["may have"]):
        if key in load:
            yield ("load", key), f"load.{key}: belongs to the {other} workload model, and this one is {model}"
    if model == "open":
        yield from _rate_problems(load)
    budgets = [key for key in BUDGETS if key in load]
    if len(budgets) == len(BUDGETS):
        yield ("load", BUDGETS[1]), f"load.{BUDGETS[1]}: name either it or load.{BUDGETS[0]}, never both"
    if isinstance(timing, dict) and bool(budgets) == ("steady_state" in timing):
        if budgets:
            yield ("load", budgets[0]), f"load.{budgets[0]}: name either it or timing.steady_state, never both"
        elif not {"arrival_steps", "arrival_rates"} & set(load):  # whose length says it
            yield ("timing", "steady_state"), "timing.steady_state: is missing, and so is load.requests"


def _rate_problems(load: dict[str, Any]) -> Iterator[tuple[Keys, str]]:
    given = [key for key in RATES if key in load]
    if not given:
        others = " or ".join(f"load.{key}" for key in RATES[1:])
        yield ("load", RATES[0]), f"load.{RATES[0]}: is missing; the open workload model needs it, or {others}"
    for key in given[1:]:
        yield ("load", key), f"load.{key}: name either it or load.{given[0]}, never both"


def shape_problems(document: Document) -> Iterator[tuple[Keys, str]]:
    """What the schema says of a document: (path of keys, message)."""
    for path, feature in NOT_BUILT.items():
        if _has(document, path):
            yield path, f"{_dotted(path)}: not built yet ({feature}); leave it out"
    server = document.get("server")
    for key in ("system", "configuration"):
        if isinstance(server, dict) and key not in server and "external" not in server:
            yield ("server", key), f"server.{key}: is missing"
    try:
        Experiment.model_validate(document)
    except pydantic.ValidationError as error:
        for detail in error.errors():
            path = tuple(detail["loc"])
            yield path, _message(path, detail, document)


def _message(path: Keys, detail: Any, document: Document) -> str:
    kind, dotted = detail["type"], _dotted(path)
    if kind == "extra_forbidden":
        return f"{dotted}: there is no such key{did_you_mean(str(path[-1]), _keys_beside(path))}"
    if kind == "missing":
        return f"{dotted}: is missing"
    if kind == "literal_error":
        allowed = detail["ctx"]["expected"]
        words = re.findall(r"'(\w+)'", allowed)
        return f"{dotted}: {detail['input']!r} is not {allowed}{did_you_mean(str(detail['input']), words)}"
    return f"{dotted}: {sentence(detail)}"


def sentence(detail: Any) -> str:
    """One pydantic error in words that fit a file rather than a program."""
    kind, given, limits = detail["type"], detail["input"], detail.get("ctx", {})
    words = {
        "int_type": f"{given!r} is not a whole number",
        "string_type": f"{given!r} is not text",
        "dict_type": f"{given!r} is not a mapping",
        "model_type": f"{given!r} is not a mapping",
        "list_type": f"{given!r} is not a list",
        "too_short": "is empty",
        "greater_than_equal": f"{given!r} is below {limits.get('ge')}",
        "less_than_equal": f"{given!r} is above {limits.get('le')}",
    }
    return words.get(kind) or str(detail["msg"]).removeprefix("Value error, ")


def _keys_beside(path: Keys) -> list[str]:
    model: Any = Experiment
    for key in path[:-1]:
        annotation = model.model_fields[key].annotation if key in model.model_fields else None
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        model = next((c for c in candidates if isinstance(c, type) and issubclass(c, Model)), None)
        if model is None:
            return []
    return list(model.model_fields)


def _has(document: Document, path: Keys) -> bool:
    node: Any = document
    for key in path:
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True


def _dotted(path: Keys) -> str:
    return ".".join(map(str, path))
