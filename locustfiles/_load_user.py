"""The user of every workload: it says how one request is made, and the load model says when."""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import logging
import traceback

import _objectives  # noqa: F401 (--objective and --abort-when)
import _preparation  # noqa: F401 (there the load model is made at the start of a test)
from _load_models import model_of
from _options import think_time
from locust import User, task
from locust.exception import StopTest, StopUser
from locust.user.task import LOCUST_STATE_STOPPING

log = logging.getLogger(__name__)


class LoadUser(User):
    """A workload's class has this one as its first base, and one method, make_request()."""

    abstract = True
    wait_time = think_time

    def make_request(self) -> None:
        """Make one request, judge the answer and fire Locust's `request` event: what a workload consists of.

        In the closed model it is called in a loop with think time, in the open model once for each arrival.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method make_request()")

    @task
    def follow_the_model(self) -> None:
        """Locust's side of it: there is one task, and the load model decides what it does."""
        model_of(self.environment).run(self)

    @property
    def is_stopping(self) -> bool:
        """Locust has told the user to end."""
        return self._state == LOCUST_STATE_STOPPING

    def stop(self, force: bool = False) -> bool:
        """Told to end; the model knows whether the user is waiting for something."""
        stopped = bool(super().stop(force))
        if not stopped:
            model_of(self.environment).release(self)
        return stopped

    def make_request_safely(self) -> None:
        """As Locust does it: an error of the workload's own code is reported and does not end the user."""
        try:
            self.make_request()
        except (StopUser, StopTest):
            raise
        except Exception as error:
            self.environment.events.user_error.fire(user_instance=self, exception=error, tb=error.__traceback__)
            log.error("%s\n%s", error, traceback.format_exc())
