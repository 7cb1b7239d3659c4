"""Models of runs for tests of reports, without any run."""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from orchestrator.base.results import CheckResult, Reason, Status, WorkerResult, sum_up
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.review.judging.judgement import Candidate, CheckVerdict, Flag, Judgement
from orchestrator.review.landing.merged import LeftWorker, Merged
from orchestrator.runs.reports.model import RunReport
from orchestrator.state.record.states import STATE_IN, Phase, PhaseKind, RunState
from orchestrator.state.record.worker_view import WorkerView

START = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
BASE = "0123456789abcdef0123456789abcdef01234567"
RUN_ID = "20261121-093000-5f0c2a"
_OF_RESULTS = {"cost", "started_at", "steps"}
"""Fields of a worker that come from its result."""
_OF_SPECS = {"name", "task", "required"}
_NOT_STARTED = frozenset({Reason.DEPENDENCY, Reason.CONFLICT, Reason.SETUP_FAILED})


def at(seconds: float) -> datetime:
    """Return a moment of the run."""
    return START + timedelta(seconds=seconds)


def ended(
    directory: Path, number: int, status: Status = Status.SUCCESS, *, log: str = "", **rest: Any
) -> WorkerView:
    """Return a worker that has ended; `log` is what it printed on stdout."""
    own_names = {field.name for field in fields(WorkerView)} - _OF_RESULTS - {"spec"}
    own = {name: rest.pop(name) for name in own_names if name in rest}
    of_spec = {name: rest.pop(name) for name in _OF_SPECS if name in rest}
    spec = WorkerSpec(**{"worker_id": number, "task": f"task {number}", "model": None, **of_spec})
    state = rest.pop("state", None)
    path = directory / f"worker-{number}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "stdout.log").write_text(log, encoding="utf-8", errors="surrogatepass")
    reason = rest.get("reason")
    started = None if reason in _NOT_STARTED else at(1)
    result = WorkerResult(
        worker_id=number, branch=f"architect/parallel-{number}", status=status, model="default",
        worktree_path=f"/repo/.architect-parallel-{number}", log=str(path), duration=2.5,
        name=spec.name, **{"started_at": started, **rest},
    )  # fmt: skip
    phases = tuple(
        Phase(kind=kind, start=at(begin), end=at(end))
        for kind, begin, end in (
            (PhaseKind.QUEUE, 0, 0.5), (PhaseKind.PREPARE, 0.5, 1), (PhaseKind.AGENT, 1, 3.5),
            (PhaseKind.HARVEST, 3.5, 4),
        )
    )  # fmt: skip
    if state is not None:
        kind = next(kind for kind, shown in STATE_IN.items() if shown is state)
        phases = (*phases[:2], Phase(kind, at(1), at(3.5), is_open=True))
    worker = WorkerView(spec=spec, position=number, directory=path, started_at=started)
    worker.phases = phases
    if own.pop("result", result):
        worker.finish(result)
    return replace(worker, **own)


def check(directory: Path, name: str, *, passed: bool, log: str = "") -> CheckResult:
    """Return the result of a check; `log` is what it printed."""
    path = directory / f"check-{abs(hash((name, log)))}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(log, encoding="utf-8", errors="surrogatepass")
    code, message = (0, None) if passed else (1, "exited with 1")
    return CheckResult(
        name=name, passed=passed, exit_code=code, duration=1.5, log=str(path), message=message
    )


def ended_run(directory: Path, workers: Sequence[WorkerView], **rest: Any) -> RunReport:
    """Return a run whose workers have ended."""
    results = [worker.result for worker in workers if worker.result]
    result = sum_up(results, run_id=RUN_ID, base=BASE, engine="docker 28", duration=5.0)
    values = {
        "run_id": RUN_ID, "state": RunState.FINISHED, "base": BASE, "engine": "docker 28",
        "top": directory, "directory": directory, "slots": 2, "started_at": START, "until": at(5),
        "by_number": {worker.worker_id: worker for worker in workers}, "result": result,
    }  # fmt: skip
    return RunReport(**{**values, **rest})


def every_status(directory: Path, *, text: str = "a\nb", task: str = "do it") -> RunReport:
    """Return a run with a worker for every reason, all of whose texts are `text`."""
    failed, reasons = Status.FAILED, list(Reason)
    earlier = ended(directory, 90, failed, log=text, reason=Reason.AGENT_FAILED, message=text)
    assert earlier.result is not None
    workers = [
        ended(directory, 1, log=text, task=task, commit=BASE, tokens=7, files_modified=["a.py"],
              cost=0.5, cost_known=True),
        ended(directory, 2, log=text, task=task, attempts=(earlier.result,)),
        *(
            ended(directory, number, Status.TIMEOUT if reason is Reason.TIMEOUT else failed,
                  log=text, task=task, reason=reason, message=text)
            for number, reason in enumerate(reasons, start=3)
        ),
        ended(directory, 50, Status.PARTIAL, log=text, task=task, reason=Reason.CHECKS_FAILED,
              message=text, attempts=(earlier.result,),
              checks=[check(directory, text, passed=False, log=text),
                      check(directory, text, passed=True), check(directory, "b", passed=True)]),
    ]  # fmt: skip
    return ended_run(directory, workers, name="nightly")


def three_workers(directory: Path, *, text: str, task: str) -> RunReport:
    """Return a run with all kinds of text: messages, output, attempts and checks are `text`."""
    earlier = ended(directory, 90, Status.FAILED, log=text, reason=Reason.OOM, message=text)
    assert earlier.result is not None
    workers = [
        ended(directory, 1, log=text, task=task),
        ended(directory, 2, Status.FAILED, log=text, task=task, reason=Reason.AGENT_FAILED,
              message=text, attempts=(earlier.result,)),
        ended(directory, 3, Status.PARTIAL, log=text, task=task, reason=Reason.CHECKS_FAILED,
              message=text, checks=[check(directory, text, passed=False, log=text)]),
    ]  # fmt: skip
    return ended_run(directory, workers, name="nightly", notices=(text,))


def judged(*, report_workers: int = 3, text: str = "a flag", **rest: Any) -> Judgement:
    """Return a judgement: worker 1 is the best, worker 2 fails, the others are excluded."""
    passing = CheckVerdict(command="make test", verdict="fixed")
    failing = CheckVerdict(command="make test", verdict="broke", broken=(text,), broken_count=1)
    out = (
        Flag(flag="tests_weakened", out=True, message=text, file="tests/test_a.py"),
        Flag(flag="nothing_ran", out=True, message=text),
        Flag(flag="suppressed", out=False, message=text, file="a b.py", line=7),
    )
    candidates = tuple(
        Candidate(
            run_id=RUN_ID, worker_id=number, commit=BASE, protected=BASE, place=number,
            passes=number == 1, out=number > 2, flags=out if number > 2 else (),
            checks=(failing if number == 2 else passing,), lines=3, files=1,
        )
        for number in range(1, report_workers + 1)
    )  # fmt: skip
    values = {
        "run_id": RUN_ID, "number": 1, "base": BASE, "tests": "extend", "checks": ("make test",),
        "decision": "clear", "picked": 1, "ranking": candidates,
    }  # fmt: skip
    return Judgement(**{**values, **rest})


def merged(*, text: str = "conflicts with worker 1") -> Merged:
    """Return a merge of worker 1; worker 2 conflicts and worker 3 was not named."""
    left = (
        LeftWorker(worker_id=2, reason="conflict", message=text, files=("a.py", text)),
        LeftWorker(worker_id=3, reason="failed", message=text),
    )
    return Merged(
        run_id=RUN_ID, form="merge", target="main", before=BASE, after=BASE[::-1], dry_run=False,
        landed=(1,), left=left,
    )  # fmt: skip


def decided(directory: Path, *, text: str) -> RunReport:
    """Return a run that was judged and merged, all of whose texts are `text`."""
    report = three_workers(directory, text=text, task=text)
    decisions = {"judgement": judged(text=text, checks=(text,)), "merged": merged(text=text)}
    return replace(report, **decisions)


def sarif_log(*found: tuple[str, str, int, str], **rest: Any) -> str:
    """Return a SARIF file with findings: rule, URI of the file, line and text."""
    results = [
        {
            "ruleId": rule,
            "message": {"text": text},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": uri},
                        "region": {"startLine": line},
                    }
                }
            ],
            **rest,
        }
        for rule, uri, line, text in found
    ]
    tool = {"driver": {"name": "audit", "rules": []}}
    return json.dumps({"version": "2.1.0", "runs": [{"tool": tool, "results": results}]})
