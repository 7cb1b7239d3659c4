"""Tests of commands on workers in every state: exit codes, and the states that are named."""

import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.base.events import (
    Event,
    RunDone,
    RunStarted,
    WorkerDone,
    WorkerHarvesting,
    WorkerPreparing,
    WorkerRetrying,
    WorkerStage,
    WorkerStarted,
)
from orchestrator.base.results import Reason, Status, WorkerResult, sum_up
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.output.live_table import BoardView
from orchestrator.faces.web.summaries import badge_of
from orchestrator.repository.repository import Repository
from orchestrator.runs.notify.notifications import notification
from orchestrator.runs.reports.formats import FORMATS
from orchestrator.runs.reports.model import read_run
from orchestrator.runs.reports.plain_text import tally_of_workers
from orchestrator.state.record.history import RunHistory
from orchestrator.state.record.listing import list_runs
from orchestrator.state.record.states import WorkerState
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_outline import read_outline
from orchestrator.state.run_record import RunRecord
from tests.support.local_engine import LocalEngine
from tests.support.reports import RUN_ID, at
from tests.support.repository import git
from tests.support.runs import configured

BRANCH = "architect/parallel-1"
UNDER_WAY: dict[str, Sequence[Event]] = {
    "queued": (),
    "retrying": (
        WorkerStarted(at=at(2), worker_id=1, container="c"),
        WorkerRetrying(at=at(3), worker_id=1, attempt=2, delay=9.0, reason="agent_failed"),
    ),
    "preparing": (WorkerPreparing(at=at(1), worker_id=1),),
    "running": (WorkerStarted(at=at(2), worker_id=1, container="c"),),
    "harvesting": (
        WorkerStarted(at=at(2), worker_id=1, container="c"),
        WorkerHarvesting(at=at(3), worker_id=1),
    ),
    "check": (WorkerStage(at=at(4), worker_id=1, stage="check", name="tests", container="k"),),
}
ENDED: dict[str, dict[str, Any]] = {
    "success": {"status": Status.SUCCESS},
    "partial": {"status": Status.PARTIAL, "reason": Reason.CHECKS_FAILED},
    "failed": {"status": Status.FAILED, "reason": Reason.OOM},
    "timeout": {"status": Status.TIMEOUT, "reason": Reason.TIMEOUT},
    "cancelled": {"status": Status.FAILED, "reason": Reason.CANCELLED},
    "skipped": {"status": Status.FAILED, "reason": Reason.DEPENDENCY, "started_at": None},
}
CODES = {"success": 0, "partial": 2, "timeout": 5}
"""Exit codes of runs with one worker in a final state; 1 for the other states."""
STATES = (*UNDER_WAY, "died", *ENDED)
NAMES = frozenset({
    *(state.value for state in WorkerState), *ENDED, "died", "finished", "paused", "interrupted",
}) - {"done", "setup"}  # fmt: skip


class Closing:
    """The local engine as a connection that commands close."""

    def __init__(self, engine: LocalEngine) -> None:
        self.leftovers, self.enter = engine.leftovers, engine.enter

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture(autouse=True)
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch, local_engine: LocalEngine) -> None:
    monkeypatch.chdir(repo)
    for place in ("engine", "faces.cli.commands.cleanup"):
        monkeypatch.setattr(f"orchestrator.{place}.load_engine", lambda *_: Closing(local_engine))


def written(repo: Path, state: str) -> RunDirectory:
    """Write a run with one worker in a state, which has the branch of such a worker."""
    base = git(repo, "rev-parse", "HEAD")
    spec = WorkerSpec(worker_id=1, task="do it", model=None)
    record = RunRecord(
        run_id=RUN_ID, created_at=at(0), top=repo, base=base, engine="docker", workers=(spec,),
        config=configured("do it"),
    )  # fmt: skip
    directory = RunDirectory(repo / ".git" / "orchestrator" / "runs" / RUN_ID)
    directory.create(record.public_json())
    directory.log_event(RunStarted(at=at(0), run_id=RUN_ID, base=base, workers=(spec,), slots=2))
    if state != "skipped":
        git(repo, "branch", BRANCH)
    for event in UNDER_WAY["running" if state == "died" else state] if state not in ENDED else ():
        directory.log_event(event)
    if state in ENDED:
        values = {"started_at": at(2), **ENDED[state]}
        result = WorkerResult(
            worker_id=1, branch=BRANCH, model="default", worktree_path="", duration=5.0,
            base=base, commit=base, **values,
        )  # fmt: skip
        directory.write_result(result)
        directory.log_event(WorkerDone(at=at(8), result=result))
        directory.write_run_result(
            sum_up([result], run_id=RUN_ID, base=base, engine="docker", duration=8.0)
        )
    if state not in UNDER_WAY:
        directory.release()
    return directory


def named_in(text: str) -> set[str]:
    """Return the states that a text names, without advice, columns and numbers of workers."""
    lines = [line for line in text.splitlines() if not line.startswith(("hint:", "WORKER"))]
    words = set(re.findall(r"[a-z_]+", "\n".join(lines)))
    return words & NAMES


COMMANDS: dict[str, tuple[str, ...]] = {
    "exec": ("exec", "1", "--", "true"),
    "shell": ("shell", "1"),
    "stop": ("stop", "1"),
    "logs": ("logs", "1"),
    "diff": ("diff", "1"),
    "conflicts": ("conflicts",),
    "merge": ("merge", "1"),
    "retry": ("retry", "1"),
    "resume": ("resume",),
    "wait": ("wait",),
    "parallel-cleanup": ("parallel-cleanup", "1", "--dry-run"),
    "ls": ("ls", "--all"),
    "report": ("report",),
}
UNTESTED = {
    *((command, state) for command in ("stop", "wait") for state in UNDER_WAY),
    *((command, state) for command in ("retry", "resume") for state in ("died", *ENDED)),
}
"""Commands that wait for a live run, or start containers."""
SAYS_NOTHING = {("stop", state) for state in ENDED} | {
    (command, state) for command in ("conflicts", "merge", "parallel-cleanup") for state in ENDED
}
"""Commands that name only the run or the work of a worker that has ended."""


def code_of(command: str, state: str) -> int:
    """Return the expected exit code."""
    if command in ("exec", "shell", "resume", "retry"):
        return 3
    if command == "wait":
        return 7 if state == "died" else CODES.get(state, 1)
    if command == "stop":
        return 7 if state == "died" else 3
    if command == "merge":
        return 0 if state in ENDED else 3
    return 1 if command == "parallel-cleanup" and state in UNDER_WAY else 0


def allowed_in(command: str, state: str) -> set[str]:
    """Return the states that a message may name: those of the worker and of its run."""
    of_run = {"running"} if state in UNDER_WAY else {"died"} if state == "died" else {"finished"}
    if command in ("exec", "shell", "logs", "diff", "merge") and state == "died":
        return {"died", "running"}  # the last recorded state
    if command == "report" and state == "skipped":
        return {"skipped", "failed"}  # the run failed
    return {state} | of_run


def names(said: str, state: str) -> bool:
    """Return whether a text names a state, by its name or its sentence."""
    by_sentence = state in UNDER_WAY and WorkerState(state).sentence in said
    return by_sentence or state in named_in(said)


@pytest.mark.parametrize("state", STATES)
def test_every_command_names_the_state_of_a_worker_and_no_other(
    repo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    directory = written(repo, state)
    for command, words in COMMANDS.items():
        if (command, state) in UNTESTED:
            continue
        with monkeypatch.context() as patch:
            for stream in (sys.stdin, sys.stdout) if command == "shell" else ():
                patch.setattr(stream, "isatty", lambda: True)
            code = run([*words])
        shown = capsys.readouterr()
        said = shown.out + shown.err
        assert code == code_of(command, state), (command, said)
        assert named_in(said) <= allowed_in(command, state), (command, said)
        # These two are about the whole run, which others may carry out.
        silent = (
            command in ("retry", "resume", "parallel-cleanup") or (command, state) in SAYS_NOTHING
        )
        assert silent or names(said, state), (command, said)
    directory.release()


def test_stop_names_the_end_of_a_worker_of_a_live_run(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = written(repo, "running")
    result = WorkerResult(
        worker_id=1, branch=BRANCH, model="default", worktree_path="", **ENDED["failed"]
    )
    directory.write_result(result)
    directory.log_event(WorkerDone(at=at(8), result=result))
    assert run(["stop", "1"]) == 0
    assert names(capsys.readouterr().out, "failed")
    directory.release()


@pytest.mark.parametrize("state", STATES)
def test_tables_pages_and_reports_use_the_same_name(repo: Path, state: str) -> None:
    directory = written(repo, state)
    outline, report = read_outline(directory), read_run(directory)
    assert outline is not None
    assert report is not None
    with RunHistory(directory, outline) as history:
        snapshot = history.snapshot()
    (listed,) = list_runs(Repository(repo), everything=True).runs
    told = {
        "page": badge_of(snapshot.workers[0].word).word.lower(),
        "list": listed.workers[0].outcome.partition(" ")[0],
        "report": report.workers[0].outcome.partition(" ")[0],
        "sum": tally_of_workers(report).partition(" ")[2],
    }
    assert set(told.values()) == {state}, told
    shown = FORMATS["html"].render(report) + FORMATS["markdown"].render(report)
    assert state in named_in(re.sub("<style>.*?</style>", "", shown, flags=re.DOTALL))
    if state != "died":
        view = BoardView(io.StringIO())
        for event in snapshot.events:
            view(event)
        paper = io.StringIO()
        Console(file=paper, width=150).print(view.render())
        assert state in named_in(paper.getvalue().partition("LAST LINE")[2]), paper.getvalue()
    if state in ENDED:
        message = notification(RUN_ID, RunDone(result=snapshot.result))
        assert message is not None
        assert ("cancelled" in str(message["text"])) is (state == "cancelled")
    directory.release()
