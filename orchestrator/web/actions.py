"""The actions `stop` and `retry` of web pages, which do the same as the commands of these names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from orchestrator.errors import ConfigError
from orchestrator.events import Notice
from orchestrator.git.repository import Repository
from orchestrator.record.history import RunHistory
from orchestrator.record.stop_request import request_stop
from orchestrator.text.quantities import count
from orchestrator.text.sanitize import one_line
from orchestrator.web.rendering import Page, render
from orchestrator.web.urls import path_of
from orchestrator.web.view import View

Action = Literal["stop", "retry"]
Retry = Callable[[Repository, str, int], str]
"""Function that repeats a worker, given by repository, run id and number, as a new run in the
background, and returns the new run's id.
"""


@dataclass(frozen=True)
class Actions:
    """Performs the actions that a browser requests: stop and retry of workers."""

    repeat: Retry

    def question(self, view: View, name: Action, number: int | None) -> Page:
        """Return the page that describes an action and asks the user to confirm the action."""
        who = "the run" if number is None else f"worker {number}"
        run_id, repository = view.snapshot.run_id, view.run.repository
        values: dict[str, object] = {
            "repository": repository,
            "run_id": run_id,
            "back": view.site.href(repository, run_id, number),
        }
        if name == "stop":
            values |= _stop_question(view, who, number)
        else:
            values |= _retry_question(view, number)
        return render("confirm.html", view.site, values)

    def act(self, view: View, name: Action, number: int | None, *, how: str) -> str:
        """Perform a confirmed action, and return the address of the page to show next.

        Raises:
            OrchestratorError: The action is not possible in the run's current state.
        """
        if name == "stop":
            return _stop(view, number, kill=how == "kill")
        return self._retry(view, number)

    def _retry(self, view: View, number: int | None) -> str:
        if number is None:
            raise ConfigError("no worker was chosen")
        new = self.repeat(view.repository, view.snapshot.run_id, number)
        message = f"web view: worker {number} is repeated as run {new}"
        view.run.directory.log_event(Notice(message=message))
        return path_of(view.run.repository, new)


def _stop_question(view: View, who: str, number: int | None) -> dict[str, object]:
    live = [worker for worker in view.snapshot.workers if worker.result is None]
    lines = [
        "The agent gets a signal and a few seconds to end. What it wrote is saved on its branch.",
        "“Kill at once” leaves out these seconds; what the agent wrote is saved too.",
    ]
    if number is None:
        lines.insert(0, f"{count(len(live), 'worker')} of {view.snapshot.run_id} will be stopped.")
    return {
        "question": f"Stop {who}?",
        "lines": lines,
        "buttons": (("stop", f"Stop {who}", "danger"), ("kill", "Kill at once", "ghost")),
    }


def _retry_question(view: View, number: int | None) -> dict[str, object]:
    worker = view.snapshot.by_number.get(number or 0)
    task = one_line(worker.spec.task, limit=200) if worker else ""
    return {
        "question": f"Retry worker {number}?",
        "lines": [
            f"A new run starts in the background with the same task, model and base: {task}",
            "The branch of this worker is not changed.",
        ],
        "buttons": (("retry", f"Retry worker {number}", "primary"),),
    }


def _stop(view: View, number: int | None, *, kill: bool) -> str:
    with RunHistory(view.run.directory, view.run.outline) as history:
        chosen = list(history.workers) if number is None else [number]
        stopped = request_stop(history, chosen, kill=kill)
    if stopped:
        workers = ", ".join(map(str, stopped))
        how = "kill" if kill else "stop"
        message = f"web view: the user asked to {how} worker {workers}"
        view.run.directory.log_event(Notice(message=message))
    return path_of(view.run.repository, view.snapshot.run_id, number)
