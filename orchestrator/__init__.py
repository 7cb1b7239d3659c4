"""Run many coding agents, CI jobs or untrusted tasks at once, each in its own container."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.config.container import Isolation, Limits
    from orchestrator.config.run import ParallelConfig
    from orchestrator.errors import OrchestratorError
    from orchestrator.judging.judge_request import JudgingRules, Rounds
    from orchestrator.judging.judgement import Judgement
    from orchestrator.landing.conflict_matrix import Conflicts
    from orchestrator.landing.merge_request import MergeOptions
    from orchestrator.landing.merged import Merged
    from orchestrator.results import Reason, RunResult, Status, WorkerResult
    from orchestrator.runs.candidates import evaluate, judge
    from orchestrator.runs.merging import conflicts, diff, merge, undo
    from orchestrator.runs.picking import compare, pick
    from orchestrator.runs.recorded import (
        History,
        clean_up,
        list_runs,
        report,
        restore,
        resume,
        retry,
    )
    from orchestrator.runs.runner import ParallelRunner
    from orchestrator.workflow.model import Workflow
    from orchestrator.workflow.parsing.reader import read_workflow

__all__ = [
    "Conflicts",
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
    "Status",
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
    "undo",
]

_HOMES = {
    "config.container": ("Isolation", "Limits"),
    "config.run": ("ParallelConfig",),
    "errors": ("OrchestratorError",),
    "judging.judge_request": ("JudgingRules", "Rounds"),
    "judging.judgement": ("Judgement",),
    "landing.conflict_matrix": ("Conflicts",),
    "landing.merge_request": ("MergeOptions",),
    "landing.merged": ("Merged",),
    "results": ("Reason", "RunResult", "Status", "WorkerResult"),
    "runs.candidates": ("evaluate", "judge"),
    "runs.merging": ("conflicts", "diff", "merge", "undo"),
    "runs.picking": ("compare", "pick"),
    "runs.recorded": (
        *("History", "clean_up", "list_runs", "report", "restore", "resume", "retry"),
        "continue_worker",
    ),
    "runs.runner": ("ParallelRunner",),
    "state.turns": ("NextTurn",),
    "workflow.model": ("Workflow",),
    "workflow.parsing.reader": ("read_workflow",),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # what a module's attribute is
    # Loaded on first use: `orchestrator --help` must not wait for the import of Docker's SDK.
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"orchestrator.{module}"), name)
    raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
