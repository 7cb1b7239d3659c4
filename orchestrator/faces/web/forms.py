"""The forms of web pages that start commands."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.results import Status
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.fields import FIELDS, FieldPath
from orchestrator.config.loading.bounds import key_of
from orchestrator.config.loading.loading import load_settings
from orchestrator.config.settings.container import NETWORKS
from orchestrator.config.settings.presets import PRESETS
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.web.commands import (
    Field,
    Form,
    MakeForm,
    MakeWorkerForm,
)
from orchestrator.faces.web.settings import config_of_worker
from orchestrator.faces.web.view import View
from orchestrator.repository.repository import LANDED, Repository
from orchestrator.state.landing_record import Landed, read_record
from orchestrator.state.record.states import RunState
from orchestrator.state.record.worker_view import WorkerView
from orchestrator.state.run_record import RunRecord

_REDACTED = "[redacted:"
_MIB = 1024**2
_MOST_NAMED = 12
_MOST_MERGES = 20
"""Maximum number of merges of a run that a page reads."""


def merges(view: View) -> list[Landed]:
    """Return the merges of the run that were not undone, newest first."""
    found: list[Landed] = []
    name: str | None = f"{LANDED}{view.snapshot.run_id}"
    while name and len(found) < _MOST_MERGES and (landed := read_record(view.repository, name)):
        found.append(landed)
        name = landed.previous
    return found


def resume_form(view: View) -> Form | None:
    """Return the form that continues a run whose process died."""
    if view.snapshot.state is not RunState.DIED:
        return None
    run_id = view.snapshot.run_id
    return Form(
        name="resume", title="Resume the run?", button="Resume", words=("resume", run_id),
        goes_on=True,
        lines=("The run continues in the background. Tasks that have ended are not repeated.",),
    )  # fmt: skip


def undo_form(view: View) -> Form | None:
    """Return the form that undoes the latest merge of a run."""
    latest = next(iter(merges(view)), None)
    if latest is None:
        return None
    workers, branch = ", ".join(map(str, latest.workers)), one_line(latest.branch)
    moved = f"{branch} points at {latest.before[:12]} again" if latest.moves else "files are reset"
    return Form(
        name="undo", title="Undo the merge?", button="Undo the merge", tone="danger",
        words=("merge", view.snapshot.run_id, "--undo", "--into", latest.branch),
        lines=(
            f"The merge of worker {workers} into {branch} is undone: {moved}.",
            "Nothing is undone if the branch has moved since. The workers' branches stay.",
        ),
    )  # fmt: skip


def cleanup_form(view: View) -> Form | None:
    """Return the form that removes the worktrees and branches of a run."""
    if view.snapshot.is_live:
        return None
    return Form(
        name="cleanup", title="Clean up the run?", button="Clean up", tone="danger", preview=True,
        shows_output=True,
        words=("parallel-cleanup", "--run", view.snapshot.run_id),
        fields=(
            Field(name="merged", label="Only workers whose work is merged", flag="--merged",
                  kind="switch"),
        ),
        lines=(
            "Worktrees, branches and containers of the run are removed.",
            "Work that is not merged is kept as a backup, which `orchestrator restore` restores.",
        ),
    )  # fmt: skip


def pull_request_form(view: View) -> Form | None:
    """Return the form that publishes workers' branches as pull requests."""
    done = [worker for worker in view.snapshot.workers if worker.result and worker.result.commit]
    if view.snapshot.is_live or not done:
        return None
    good = tuple(
        str(worker.worker_id)
        for worker in done
        if worker.result and worker.result.status is Status.SUCCESS and worker.result.file_count
    )
    return Form(
        name="pr", title="Create pull requests", button="Push and create", preview=True,
        shows_output=True,
        words=("pr", view.snapshot.run_id),
        fields=(
            Field(name="worker", label="Workers", kind="workers", values=good),
            Field(name="into", label="Into the remote branch", flag="--into",
                  help="Default: the name of the branch that is checked out."),
            Field(name="draft", label="Drafts", flag="--draft", kind="switch"),
            Field(name="stack", label="Stacked on the workers that they build on", flag="--stack",
                  kind="switch"),
        ),
        lines=(
            "Branches are pushed, never with force, and `gh` or `glab` creates a pull request for "
            "each with your account. Repeating it updates the pull requests.",
        ),
    )  # fmt: skip


def judge_form(view: View) -> Form | None:
    """Return the form that ranks the workers of a run by checks."""
    if view.snapshot.is_live or not any(worker.result for worker in view.snapshot.workers):
        return None
    plan = view.plan
    known = plan.config.project.checks if plan is not None else ()
    return Form(
        name="judge", title="Judge the workers", button="Judge", after="judgement", good=(0, 1, 2),
        words=("judge", view.snapshot.run_id),
        fields=(
            Field(name="check", label="Checks", flag="--check", kind="lines",
                  values=tuple(check.run for check in known),
                  help="Commands that must succeed, one in each line. "
                  "Default: `checks` of the configuration."),
            Field(name="must", label="Must be fixed", flag="--must-fix", kind="lines",
                  help="Checks that fail on the base commit and must pass, one in each line."),
        ),
        lines=(
            "Checks run in fresh containers on each worker's commit, with the tests of the base. "
            "No agent starts.",
        ),
    )  # fmt: skip


RUN_FORMS: Mapping[str, MakeForm] = {
    "resume": resume_form,
    "undo": undo_form,
    "cleanup": cleanup_form,
    "pr": pull_request_form,
    "judge": judge_form,
}
"""The forms of a run, by the last part of the address."""

_NEW_SETTINGS = (
    Field(name="model", label="Model", flag="--model", help="Default: as before."),
    Field(name="timeout", label="Time limit in seconds", flag="--timeout-per-worker", kind="number",
          help="Default: as before."),
    Field(name="budget", label="Budget in USD", flag="--budget-per-worker", kind="number",
          help="Default: as before."),
)  # fmt: skip


def retry_form(view: View, worker: WorkerView) -> Form | None:
    """Return the form that repeats a worker that has ended as a new run."""
    number, run_id = worker.worker_id, view.snapshot.run_id
    if worker.word == "skipped" or (view.snapshot.is_live and worker.result is None):
        return None
    return Form(
        name="retry", title=f"Retry worker {number}?", button=f"Retry worker {number}",
        words=("retry", f"{number}", "--run", run_id), quiet=("--events",),
        fields=(
            Field(name="message", label="Another text for the worker", flag="--message",
                  kind="message", help="Default: the same task."),
            Field(name="keep", label="Start from the worker's branch instead of the base",
                  flag="--retry-from=keep", kind="switch"),
            *_NEW_SETTINGS,
        ),
        lines=(
            "A new run with this worker alone starts in the background. Its task was: "
            + one_line(worker.spec.task, limit=200),
            "The branch of this worker is not changed.",
        ),
    )  # fmt: skip


def continue_form(view: View, worker: WorkerView) -> Form | None:
    """Return the form that sends a worker a message, in its session and on its branch."""
    number, run_id, result = worker.worker_id, view.snapshot.run_id, worker.result
    if view.snapshot.state is RunState.DIED or (
        result.never_ran if result else not worker.began_at
    ):
        return None
    commands = takes_commands(view, worker)
    fields = [Field(
        name="message", label="Next command" if commands else "Message to the worker",
        flag="--message", kind="message",
    )]  # fmt: skip
    if result is None:
        fields.append(Field(
            name="now", label="Stop its present turn first, and keep its work", flag="--now",
            kind="switch", values=("yes",) if worker.attention else (),
        ))  # fmt: skip
    elif any(not check.passed for check in result.checks):
        fields.append(Field(
            name="checks", label="Send the output of the failed checks instead of a message",
            flag="--checks", kind="switch",
        ))  # fmt: skip
    what = "the command" if commands else "the message"
    return Form(
        name="continue", title=f"Continue worker {number}", button="Send", goes_on=True,
        words=("continue", f"{number}", "--run", run_id), fields=(*fields, *_NEW_SETTINGS),
        after=f"{number}",
        lines=(
            f"The worker gets {what} as its next turn: on its branch, with its limits"
            + (". Its program runs the command in a shell." if commands else " and its session."),
            *(() if result else ("It begins when the present turn has ended.",)),
        ),
    )  # fmt: skip


def takes_commands(view: View, worker: WorkerView) -> bool:
    """Return whether a worker's program runs a message as a command of a shell."""
    plan = view.plan
    return plan is not None and config_of_worker(plan, worker.spec.name).agent_cli == "shell"


WORKER_FORMS: Mapping[str, MakeWorkerForm] = {"retry": retry_form, "continue": continue_form}
"""The forms of a worker, by the last part of the address."""

_NEW = (
    Field(name="task", label="Task", flag="--task", kind="tasks",
          help="Prompt or command. Each further task gets a worker of its own."),
    Field(name="preset", label="Preset", flag="--preset", kind="choice", choices=tuple(PRESETS)),
    Field(name="agent_cli", label="Agent program", flag="--agent-cli",
          help="Such as `claude`; `shell` runs each task as a command."),
    Field(name="models", label="Models", flag="--models", help="Of workers 1, 2, 3 and so on."),
    Field(name="workers", label="Workers at once", flag="--workers"),
    Field(name="timeout_per_worker", label="Time limit in seconds", flag="--timeout-per-worker",
          kind="number"),
    Field(name="budget_per_worker", label="Budget of a worker in USD", flag="--budget-per-worker"),
    Field(name="budget_total", label="Budget of the run in USD", flag="--budget-total"),
    Field(name="network", label="Network", flag="--network", kind="choice", choices=NETWORKS),
    Field(name="allow", label="Allowed hosts", flag="--allow", kind="lines",
          help="One in each line."),
    Field(name="keys", label="API keys", flag="--keys", kind="choice", choices=("env", "broker")),
    Field(name="cpus", label="CPUs of a worker", flag="--cpus"),
    Field(name="memory", label="Memory of a worker", flag="--memory", help="Such as `2g`."),
    Field(name="retries", label="Retries", flag="--retries", kind="number"),
    Field(name="setup", label="Setup commands", flag="--setup", kind="lines",
          help="One in each line."),
    Field(name="checks", label="Checks", flag="--check", kind="lines",
          help="Commands that must succeed on a worker's commit, one in each line."),
    Field(name="base", label="Base", flag="--base", help="Default: HEAD."),
)  # fmt: skip
_NOT_COMPARED = frozenset({"tasks", "base", "env", "max_workers", "include_uncommitted"})


def new_run_form(repository: Repository, plan: RunRecord | None = None) -> tuple[Form, list[str]]:
    """Return the form of a new run, and notes about it.

    Args:
        repository: The repository.
        plan: An earlier run, whose tasks and settings the form contains.
    """
    form = Form(
        name="new", title="New run", button="Start", words=("parallel", "--detach"),
        quiet=("--json",), fields=_NEW,
        lines=("The run starts in the background. An empty field leaves the setting to the "
               "configuration file and the defaults.",),
    )  # fmt: skip
    if plan is None:
        return form, []
    values, notes = _again(repository, plan)
    fields = tuple(replace(item, values=values.get(item.name, ())) for item in form.fields)
    title = f"Run again: {plan.run_id}"
    return replace(form, fields=fields, title=title), notes


def can_run_again(plan: RunRecord | None) -> bool:
    """Return whether a run can be started again by a form: its tasks are all in its record."""
    return plan is not None and plan.workflow is None and not plan.warms


def _again(repository: Repository, plan: RunRecord) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the values by which an earlier run differs from the settings of today, and notes."""
    config, notes = plan.config, []
    tasks = tuple(config.tasks)
    if any(_REDACTED in task for task in tasks):
        notes.append("a task contained a secret, which is not recorded")
        tasks = tuple(task for task in tasks if _REDACTED not in task)
    values: dict[str, tuple[str, ...]] = {"task": tasks}
    options = {"preset": config.preset} if config.preset else {}
    try:
        today = load_settings(
            options=options, environ=os.environ, top=repository.top, file=None, task_needed=False
        ).config
    except OrchestratorError as error:
        return values, [*notes, one_line(error.message, limit=500)]
    if config.preset:
        values["preset"] = (config.preset,)
    values["workers"] = ("auto",) if config.auto_workers else (str(config.workers),)
    others = []
    for key, field in FIELDS.items():
        mine, theirs = _value(config, field), _value(today, field)
        if mine == theirs or field[-1] in _NOT_COMPARED or field == ("auto_workers",):
            continue
        if key in {item.name for item in _NEW}:
            values[key] = _texts(mine, in_bytes=key == "memory")
        else:
            others.append(f"`{key_of(field)}`")
    others += [f"`{name}`" for name in plan.private if name != "tasks"]
    if others:
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        notes.append(f"this form does not repeat {', '.join(others[:_MOST_NAMED])}{more}")
    return values, notes


def _value(config: ParallelConfig, field: FieldPath) -> Any:  # noqa: ANN401
    value: Any = config
    for name in field:
        value = getattr(value, name)
    return value


def _texts(value: Any, *, in_bytes: bool) -> tuple[str, ...]:  # noqa: ANN401
    if value is None:
        return ()
    if in_bytes and isinstance(value, int) and value % _MIB == 0:
        return (f"{value // _MIB}m",)
    if isinstance(value, (tuple, list)):
        return tuple(getattr(item, "run", None) or str(item) for item in value)
    return (f"{value:g}" if isinstance(value, float) else str(value),)
