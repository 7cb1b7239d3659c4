"""Run many coding agents, CI jobs or untrusted tasks at once, each in its own container."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.base.errors import OrchestratorError
    from orchestrator.base.results import Reason, RunResult, Status, WorkerResult
    from orchestrator.config.settings.container import Isolation, Limits
    from orchestrator.config.settings.run import ParallelConfig
    from orchestrator.config.workflow.model import Workflow
    from orchestrator.config.workflow.parsing.reader import read_workflow
    from orchestrator.review.judging.judge_request import JudgingRules, Rounds
    from orchestrator.review.judging.judgement import Judgement
    from orchestrator.review.landing.conflict_matrix import Conflicts
    from orchestrator.review.landing.merge_request import MergeOptions
    from orchestrator.review.landing.merged import Merged
    from orchestrator.runs.purposes.candidates import evaluate, judge
    from orchestrator.runs.purposes.merging import conflicts, diff, merge, undo
    from orchestrator.runs.purposes.picking import compare, pick
    from orchestrator.runs.resuming.recorded import (
        History,
        clean_up,
        list_runs,
        report,
        restore,
        resume,
        retry,
    )
    from orchestrator.runs.runner import ParallelRunner
    from orchestrator.sandbox.batch import run_all
    from orchestrator.sandbox.live.aio import AsyncSandbox, run_all_async
    from orchestrator.sandbox.live.box import Sandbox
    from orchestrator.sandbox.live.pool import SandboxPool
    from orchestrator.sandbox.models import (
        EndReason,
        Finished,
        SandboxInfo,
        SandboxLimits,
        Submission,
        Template,
    )

__all__ = [
    "AsyncSandbox",
    "Conflicts",
    "EndReason",
    "Finished",
    "History",
    "Isolation",
    "Judgement",
    "JudgingRules",
    "Limits",
    "MergeOptions",
    "Merged",
    "NextTurn",
    "OrchestratorError",
    "ParallelConfig",
    "ParallelRunner",
    "Reason",
    "Rounds",
    "RunResult",
    "Sandbox",
    "SandboxInfo",
    "SandboxLimits",
    "SandboxPool",
    "Status",
    "Submission",
    "Template",
    "WorkerResult",
    "Workflow",
    "clean_up",
    "compare",
    "conflicts",
    "continue_worker",
    "diff",
    "evaluate",
    "judge",
    "list_runs",
    "merge",
    "pick",
    "read_workflow",
    "report",
    "restore",
    "resume",
    "retry",
    "run_all",
    "run_all_async",
    "undo",
]

_HOMES = {
    "config.settings.container": ("Isolation", "Limits"),
    "config.settings.run": ("ParallelConfig",),
    "base.errors": ("OrchestratorError",),
    "review.judging.judge_request": ("JudgingRules", "Rounds"),
    "review.judging.judgement": ("Judgement",),
    "review.landing.conflict_matrix": ("Conflicts",),
    "review.landing.merge_request": ("MergeOptions",),
    "review.landing.merged": ("Merged",),
    "base.results": ("Reason", "RunResult", "Status", "WorkerResult"),
    "runs.purposes.candidates": ("evaluate", "judge"),
    "runs.purposes.merging": ("conflicts", "diff", "merge", "undo"),
    "runs.purposes.picking": ("compare", "pick"),
    "runs.resuming.recorded": (
        *("History", "clean_up", "list_runs", "report", "restore", "resume", "retry"),
        "continue_worker",
    ),
    "runs.runner": ("ParallelRunner",),
    "sandbox.batch": ("run_all",),
    "sandbox.live.aio": ("AsyncSandbox", "run_all_async"),
    "sandbox.live.box": ("Sandbox",),
    "sandbox.live.pool": ("SandboxPool",),
    "sandbox.models": (
        *("EndReason", "Finished", "SandboxInfo", "SandboxLimits", "Submission", "Template"),
    ),
    "state.worker.turns": ("NextTurn",),
    "config.workflow.model": ("Workflow",),
    "config.workflow.parsing.reader": ("read_workflow",),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # what a module's attribute is
    # Loaded on first use: `orchestrator --help` must not wait for the import of Docker's SDK.
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"orchestrator.{module}"), name)
    raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
