"""The web UI's form is checked like the command line, before it changes anything. Importing this module adds the check.

Locust takes most text as it is, answers some with an internal error, and says "Swarming started" to everything else.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# (Locust's event hooks are not typed.)

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from typing import Any

from _errors import NotReady
from _load_models import read_form
from flask import jsonify, request
from locust import events
from locust.argument_parser import LocustArgumentParser, default_args_dict, get_parser
from locust.env import Environment

log = logging.getLogger(__name__)


def check_form(environment: Environment, parser: LocustArgumentParser, own: set[str], form: Mapping[str, str]) -> None:
    """Raise NotReady where the form asks for what the command line would refuse, or comes during a test it cannot
    change. `own`: the options that are not Locust's."""
    options = dict(vars(environment.parsed_options))
    options.update((name, value) for name, value in form.items() if name in options)
    actions = {action.dest: action for action in parser._actions}
    for name in sorted(form.keys() & own):
        if form[name] or actions[name].default is not None:  # an empty field is an option that is not given
            _check_value(parser, actions[name], form[name])
    read_form(environment, argparse.Namespace(**options))


def _check_value(parser: LocustArgumentParser, action: argparse.Action, text: str) -> None:
    if action.type is None and action.choices is None:
        return
    try:
        parser._check_value(action, parser._get_value(action, text))
    except argparse.ArgumentError as error:
        raise NotReady(f"{error}.") from None


@events.init.add_listener
def _attach(environment: Environment, web_ui: Any = None, **_: Any) -> None:
    if web_ui is None:
        return
    parser = get_parser(default_config_files=[])
    own = {action.dest for action in parser._actions} - default_args_dict().keys()

    @web_ui.app.before_request
    def check() -> Any:
        if request.method != "POST" or not request.path.endswith("/swarm"):
            return None
        try:
            check_form(environment, parser, own, request.form)
        except NotReady as error:
            log.error(error)
            return jsonify({"success": False, "message": str(error), "host": environment.host})
        return None
