"""The tools that read: runs, workers, logs, diffs and judgements."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from itertools import islice

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.text.sanitize import lines, one_line, output_line, output_lines
from orchestrator.faces.mcp import answers, arguments
from orchestrator.faces.web.logs import logs_of
from orchestrator.repository.commits.changes import patch_stream, stat_lines
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.store import latest_judgement
from orchestrator.review.landing.branches import Branch, read_branches
from orchestrator.state.record.history import RunHistory, choose_run
from orchestrator.state.record.run_view import RunView
from orchestrator.state.record.states import RunState
from orchestrator.state.record.worker_view import WorkerView
from orchestrator.state.run_directory import all_runs
from orchestrator.state.run_outline import read_outline

MOST_TEXT = 32 * 1024
"""Maximum size in bytes of the text of a log or patch in one answer."""
_MOST_PATCH = 64 * 1024**2
"""Offset in a patch after which nothing is read."""
_PIECE = 64 * 1024
_PAGE = 50
"""Maximum number of workers in one answer."""
_FILES = 100
"""Maximum number of files in one answer."""
_SUMMARY = 8 * 1024
"""Maximum size in bytes of an agent's last message."""
_TICK = 0.5
"""Seconds between two looks at a run that is waited for."""


def runs(repository: Repository, asked: arguments.ListRuns) -> answers.Runs:
    """List the newest runs."""
    own = [run for run in all_runs(repository.state_dir) if run.other_user is None]
    tasks = [run for run in reversed(own) if not run.is_test]
    found = []
    for run in tasks[: asked.most]:
        outline = read_outline(run)
        if outline is None:
            continue
        with RunHistory(run, outline) as history:
            view = history.snapshot()
        found.append(
            answers.RunEntry(
                run_id=run.run_id,
                state=view.state,
                status=view.status,
                created_at=outline.created_at,
                workers=len(outline.workers),
            )
        )
    return answers.Runs(runs=tuple(found), more=max(0, len(tasks) - asked.most))


def open_run(repository: Repository, wanted: str | None, worker: int | None = None) -> RunHistory:
    """Return the history of a run, with all recorded events read."""
    history = choose_run(list(all_runs(repository.state_dir)), wanted, worker=worker)
    history.read_all()
    return history


def run(repository: Repository, asked: arguments.OfWorkers) -> answers.RunAnswer:
    """Return the state of a run and of its workers."""
    with open_run(repository, asked.run) as history:
        view = history.snapshot()
    workers = [worker for worker in view.workers if worker.worker_id >= asked.first]
    rest = workers[_PAGE:]
    return answers.RunAnswer(
        run_id=view.run_id,
        state=view.state,
        status=view.status,
        base=view.base,
        workers=tuple(map(_entry, workers[:_PAGE])),
        next=rest[0].worker_id if rest else None,
        cursor=_cursor(_by_state(view)),
    )


def _entry(worker: WorkerView) -> answers.WorkerEntry:
    result = worker.result
    return answers.WorkerEntry(
        worker_id=worker.worker_id,
        name=worker.name,
        state=worker.ending,
        status=worker.status,
        reason=worker.reason,
        steps=worker.steps or 0,
        cost=worker.cost or 0.0,
        files=result.file_count if result else 0,
        insertions=result.insertions if result else 0,
        deletions=result.deletions if result else 0,
    )


def worker(repository: Repository, asked: arguments.OfWorker) -> answers.WorkerAnswer:
    """Return the state or the result of a worker."""
    with open_run(repository, asked.run, asked.worker) as history:
        found = history.snapshot().by_number[asked.worker]
    result = found.result
    summary = output_lines((result.summary if result else None) or "").encode()[:_SUMMARY]
    words = answers.WorkerWords(
        task=one_line(found.spec.task, limit=2000),
        message=output_line(found.message, limit=1000),
        summary=summary.decode("utf-8", "ignore"),
        files=tuple(
            one_line(path, limit=300) for path in (result.files_modified[:_FILES] if result else ())
        ),
        alerts=tuple(
            output_line(f"{alert.trigger}: {alert.detail}", limit=300)
            for alert in (result.interventions if result else ())
        ),
    )
    return answers.WorkerAnswer(
        run_id=history.run_id,
        worker=_entry(found),
        model=one_line(found.spec.model_name),
        branch=one_line(found.spec.branch, limit=300),
        commit=result.commit if result else None,
        attempts=result.attempts if result else 1,
        exit_code=result.exit_code if result else None,
        duration=result.duration if result else 0.0,
        checks=tuple(
            answers.CheckEntry(
                passed=check.passed, exit_code=check.exit_code, command=one_line(check.name)
            )
            for check in found.checks[:_FILES]
        ),
        logs=tuple(log.name for log in logs_of(history.directory, asked.worker)),
        untrusted=words,
    )


def log(repository: Repository, asked: arguments.ReadLog) -> answers.LogAnswer:
    """Return a part of a worker's log."""
    with open_run(repository, asked.run, asked.worker) as history:
        directory, run_id = history.directory, history.run_id
    logs = {log.name: log for log in logs_of(directory, asked.worker)}
    found = logs.get(asked.name)
    if found is None:
        names = ", ".join(logs) or "none"
        raise ConfigError(
            f"worker {asked.worker} has no such log", key="log.unknown", hint=f"its logs: {names}"
        )
    is_tail = asked.offset is None
    begin = max(0, found.size - MOST_TEXT) if is_tail else min(asked.offset or 0, found.size)
    with open_regular(found.path) as file:
        file.seek(begin)
        data = file.read(MOST_TEXT)
    end = begin + len(data)
    if is_tail:
        text, count = _fitting(_without_cut(data) if begin else data, output_lines, is_tail=True)
        begin = end - count
    else:
        # protection: text-of-logs-is-neutralised
        text, count = _fitting(data if end >= found.size else _whole_lines(data), output_lines)
        end = begin + count
    return answers.LogAnswer(
        run_id=run_id,
        worker_id=asked.worker,
        name=found.name,
        begin=begin,
        end=end,
        size=found.size,
        logs=tuple(logs),
        untrusted=answers.Words(text=text),
    )


def _fitting(data: bytes, clean: Callable[[str], str], *, is_tail: bool = False) -> tuple[str, int]:
    """Return neutralised text of at most `MOST_TEXT` bytes, and how many bytes it was made from.

    Args:
        data: The bytes, of which a part is used if their text is too long.
        clean: Function that neutralises text.
        is_tail: Whether the last part is used, instead of the first.
    """
    while True:
        text = clean(data.decode("utf-8", "replace"))
        # protection: text-of-logs-is-bounded
        if len(text.encode()) <= MOST_TEXT:
            return text, len(data)
        half = len(data) // 2
        data = _without_cut(data[half:]) if is_tail else _whole_lines(data[:half])


def _without_cut(data: bytes) -> bytes:
    """Return the bytes without an incomplete first line, if they have another one."""
    return data[data.find(b"\n") + 1 :] or data


def _whole_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1] or data


def diff(repository: Repository, asked: arguments.ReadDiff) -> answers.DiffAnswer:
    """Return a part of the changes of a worker."""
    chosen = read_branches(repository, asked.run, [asked.worker])
    (branch,) = chosen.branches
    stat = asked.form == "stat"
    changes, following = (_files if stat else _patch)(repository, branch, asked.offset)
    return answers.DiffAnswer(
        run_id=chosen.run_id,
        worker_id=asked.worker,
        base=branch.base,
        commit=branch.commit,
        next=following,
        untrusted=changes,
    )


def _files(repository: Repository, branch: Branch, skip: int) -> tuple[answers.Changes, int | None]:
    rows = stat_lines(repository, base=branch.base, tip=branch.commit)
    found = list(islice(rows, skip, skip + _FILES + 1))
    entries = tuple(
        answers.FileEntry(path=one_line(path, limit=300), insertions=added, deletions=removed)
        for added, removed, path in found[:_FILES]
    )
    return answers.Changes(files=entries), skip + _FILES if len(found) > _FILES else None


def _patch(repository: Repository, branch: Branch, skip: int) -> tuple[answers.Changes, int | None]:
    if skip > _MOST_PATCH:
        raise ConfigError(f"a patch is shown up to its {_MOST_PATCH}th byte", key="patch.too-long")
    with patch_stream(repository, base=branch.base, tip=branch.commit) as output:
        left = skip
        while left and (piece := output.read(min(left, _PIECE))):
            left -= len(piece)
        data = output.read(MOST_TEXT + 1)
    is_end = len(data) <= MOST_TEXT
    piece = data if is_end else _whole_lines(data[:MOST_TEXT])
    # protection: text-of-patches-is-neutralised
    text, count = _fitting(piece, lines)
    is_all = is_end and count == len(data)
    return answers.Changes(patch=text), None if is_all else skip + count


def judgement(repository: Repository, asked: arguments.OfRun) -> answers.JudgementAnswer:
    """Return the latest judgement of a run."""
    found = latest_judgement(repository.state_dir, asked.run)
    return answers.JudgementAnswer(
        run_id=found.run_id,
        base=found.base,
        decision=found.decision,
        picked=found.picked,
        checks=tuple(one_line(check) for check in (*found.must_fix, *found.checks)),
        ranking=tuple(
            answers.CandidateEntry(
                worker_id=candidate.worker_id,
                place=candidate.place,
                decided_by=candidate.decided_by,
                passes=candidate.passes,
                verdicts=tuple(check.verdict for check in candidate.verdicts),
                lines=candidate.lines,
                cost=candidate.cost,
                flags=tuple(
                    answers.FlagEntry(
                        flag=flag.flag,
                        message=output_line(flag.message, limit=300),
                        file=one_line(flag.file, limit=300) if flag.file else None,
                    )
                    for flag in candidate.flags[:20]
                ),
            )
            for candidate in found.ranking[:_FILES]
        ),
    )


async def wait(repository: Repository, asked: arguments.Wait) -> answers.WaitAnswer:
    """Wait until a run ends, or until a worker's state differs from that at a cursor."""
    until = time.monotonic() + asked.seconds
    history = await asyncio.to_thread(open_run, repository, asked.run)
    with history:
        while True:
            view = await asyncio.to_thread(history.snapshot)
            by_state = _by_state(view)
            cursor = _cursor(by_state)
            answer = answers.WaitAnswer(
                run_id=view.run_id,
                state=view.state,
                status=view.status,
                changed=asked.cursor is not None and asked.cursor != cursor,
                workers=by_state,
                cursor=cursor,
            )
            is_news = answer.state is not RunState.RUNNING or answer.changed
            if is_news or time.monotonic() >= until:
                return answer
            await asyncio.sleep(min(_TICK, max(0.0, until - time.monotonic())))


def _by_state(run: RunView) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the workers in each state."""
    found: dict[str, tuple[int, ...]] = {}
    for number, worker in run.by_number.items():
        found[worker.ending] = (*found.get(worker.ending, ()), number)
    return found


def _cursor(by_state: Mapping[str, tuple[int, ...]]) -> str:
    return hashlib.sha256(repr(sorted(by_state.items())).encode()).hexdigest()[:16]
