"""The tools that the server offers, by what the user allows."""

from collections.abc import Collection
from functools import partial

from orchestrator.faces.mcp import answers, arguments, merging, reading, starting
from orchestrator.faces.mcp.server import Allowed, Offered
from orchestrator.repository.repository import Repository


def offer_tools(
    repository: Repository, limits: starting.Limits, allowed: Collection[Allowed]
) -> tuple[Offered, ...]:
    """Return the tools that the user allows."""
    previews = merging.Previews(repository, may_merge="merge" in allowed)
    starter = starting.Starter(repository, limits)
    every = (
        Offered(
            "runs", "List the newest runs.",
            arguments.ListRuns, answers.Runs, partial(reading.runs, repository),
        ),
        Offered(
            "run", "Show the state of a run and of its workers.",
            arguments.OfWorkers, answers.RunAnswer, partial(reading.run, repository),
        ),
        Offered(
            "worker", "Show the result of a worker: status, summary, changed files, checks, logs.",
            arguments.OfWorker, answers.WorkerAnswer, partial(reading.worker, repository),
        ),
        Offered(
            "log", "Read the end of a worker's log, or a part of it, at most 32 KiB.",
            arguments.ReadLog, answers.LogAnswer, partial(reading.log, repository),
        ),
        Offered(
            "diff", "List the files that a worker changed, or read its patch in parts of 32 KiB.",
            arguments.ReadDiff, answers.DiffAnswer, partial(reading.diff, repository),
        ),
        Offered(
            "conflicts",
            "Show which workers conflict, and preview their merge into the checked-out branch. "
            "Nothing changes. The token in the answer is for `orchestrator_merge`.",
            arguments.Preview, answers.ConflictsAnswer, previews.conflicts,
        ),
        Offered(
            "judgement", "Show how the workers of a run were ranked, if they were judged.",
            arguments.OfRun, answers.JudgementAnswer, partial(reading.judgement, repository),
        ),
        Offered(
            "wait",
            "Wait until the run ends or, with `cursor`, until a worker's state changes; at most 50 "
            "seconds. Call it again while `state` is `running`.",
            arguments.Wait, answers.WaitAnswer, partial(reading.wait, repository),
        ),
        Offered(
            "run_tasks",
            "Start a run with one worker for each task, and return its id at once. Each task must "
            "be understandable alone: workers share nothing.",
            arguments.RunTasks, answers.Started, starter.run_tasks, "run",
        ),
        Offered(
            "run_spec",
            "Start a run of a workflow, whose tasks may depend on each other; return its id at "
            "once.",
            arguments.RunSpec, answers.Started, starter.run_spec, "run",
        ),
        Offered(
            "stop", "Stop workers of a run; what they wrote is committed on their branches.",
            arguments.Stop, answers.Stopped, partial(starting.stop, repository), "stop",
        ),
        Offered(
            "pick", "Merge the worker that the run's judgement found clearly the best.",
            arguments.OfRun, answers.MergedAnswer, partial(merging.pick, repository), "pick",
        ),
        Offered(
            "merge",
            "Merge exactly what `orchestrator_conflicts` previewed; refused if a branch has moved.",
            arguments.Merge, answers.MergedAnswer, previews.merge, "merge",
        ),
    )  # fmt: skip
    # protection: only-allowed-tools-are-offered
    return tuple(tool for tool in every if tool.needs is None or tool.needs in allowed)
