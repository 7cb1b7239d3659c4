"""The tools that start and stop runs, within the limits that the user gave the server."""

import os
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.agents import load_agent
from orchestrator.base.errors import ConfigError, OrchestratorError, mistakes
from orchestrator.base.events import Event, Notice
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.derived import with_changes
from orchestrator.config.loading.bounds import key_of
from orchestrator.config.loading.loading import check_contradictions, load_settings
from orchestrator.config.loading.untrusted_file import wider_settings
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.contents import with_digests
from orchestrator.config.workflow.model import Workflow
from orchestrator.config.workflow.parsing.foreach import Source
from orchestrator.config.workflow.parsing.reader import read_workflow
from orchestrator.config.workflow.planning import config_of, run_config
from orchestrator.faces.mcp import answers, arguments
from orchestrator.faces.mcp.reading import open_run
from orchestrator.repository.repository import Repository
from orchestrator.runs.resuming.detach import continue_in_background
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.record.stop_request import request_stop
from orchestrator.state.run_directory import RunDirectory

_SPEC = "spec.yaml"
"""Name of the temporary file with a workflow."""
_NOTICES = 20
_HINT = "only the user can set this: in a file named with `--config`, or as an option of the server"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the user allows the clients of the server."""

    options: Mapping[str, object]
    """Settings of all runs that the user typed."""
    config: Path | None
    """Configuration file that the user named."""
    max_workers: int
    """Maximum number of workers of all runs at the same time."""
    budget_total: float | None
    """Budget of all runs together in USD."""


@dataclass(frozen=True)
class _Run:
    """A run that this server started."""

    directory: RunDirectory
    workers: int
    budget: float | None


@dataclass
class Starter:
    """Starts runs whose workers and budgets together stay within the limits. Thread-safe."""

    repository: Repository
    limits: Limits
    _runs: list[_Run] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Check the settings of the user.

        Raises:
            ConfigError: A setting is wrong, or there is no such agent program.
        """
        load_agent(self._settings().agent_cli)

    def run_tasks(self, asked: arguments.RunTasks) -> answers.Started:
        """Start a run of one worker for each task."""
        with self._lock:
            settings = self._settings()
            config = with_changes(settings, tasks=asked.tasks, models=asked.models)
            if asked.timeout is not None:
                config = with_changes(config, timeout_per_worker=asked.timeout)
            check_contradictions(config)
            # protection: tasks-of-clients-are-bounded
            _check(config, settings, "the run")
            jobs = max(len(asked.tasks), len(asked.models))
            return self._start(config, asked.budget, min(jobs, asked.workers or jobs))

    def run_spec(self, asked: arguments.RunSpec) -> answers.Started:
        """Start a run of a workflow."""
        with self._lock:
            settings = self._settings()
            workflow = _read(asked.spec)
            for task in workflow.tasks:
                own = config_of(settings, task)
                check_contradictions(own)
                # protection: tasks-of-clients-workflows-are-bounded
                _check(own, settings, f"task `{task.id}`")
            config = run_config(settings, workflow)
            return self._start(config, asked.budget, len(workflow.tasks), workflow)

    def _settings(self) -> ParallelConfig:
        """Return the settings of runs without anything of the client."""
        limits = self.limits
        found = load_settings(
            options=limits.options,
            environ=os.environ,
            top=self.repository.top,
            file=limits.config,
            task_needed=False,
        )
        return with_changes(found.config, tasks=("-",), models=(), auto_workers=False)

    def _start(
        self,
        config: ParallelConfig,
        asked: float | None,
        workers: int,
        workflow: Workflow | None = None,
    ) -> answers.Started:
        most = self.limits.max_workers
        free = most - sum(run.workers for run in self._runs if run.directory.is_live())
        # protection: workers-of-all-runs-are-bounded
        if free <= 0:
            raise ConfigError(
                f"all {most} workers of this server are in use",
                key="workers.exhausted",
                hint="wait for the end of a run with the tool `orchestrator_wait`",
            )
        budget = self._budget(config.budget_total, asked)
        at_once = min(free, workers, config.max_workers)
        config = with_changes(config, workers=at_once, budget_total=budget)
        events: list[Event] = []
        runner = ParallelRunner(config, self.repository.top, emit=events.append, workflow=workflow)
        directory = runner.reserve()
        self._runs.append(_Run(directory, at_once, budget))
        try:
            continue_in_background(directory, top=self.repository.top)
        finally:
            directory.release()
        with open_run(self.repository, directory.run_id) as history:
            numbers = tuple(history.workers)
        notices = [event.message for event in events if isinstance(event, Notice)]
        return answers.Started(
            run_id=directory.run_id,
            workers=numbers,
            at_once=at_once,
            budget=budget,
            notices=tuple(one_line(notice, limit=300) for notice in notices[:_NOTICES]),
        )

    def _budget(self, *asked: float | None) -> float | None:
        """Return the budget of the next run, at most the rest of the server's budget."""
        total = self.limits.budget_total
        given = [budget for budget in asked if budget is not None]
        if total is None:
            return min(given, default=None)
        rest = total - sum(_largest_cost(run) for run in self._runs)
        # protection: budget-of-all-runs-is-bounded
        if rest <= 0:
            raise ConfigError(
                f"the budget of this server, {total:g} USD, is used up or promised to live runs",
                key="budget.exhausted",
                hint="start runs with the argument `budget`, or ask the user for a higher limit",
            )
        return min([*given, rest])


def _read(spec: str) -> Workflow:
    """Return the workflow that a text describes.

    Raises:
        ConfigError: The text is invalid, or does not list the items of a `foreach`.
    """
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as directory:
        path = Path(directory) / _SPEC
        path.write_text(spec, encoding="utf-8")
        try:
            return with_digests(read_workflow(path, expand=_expand).workflow)
        except OrchestratorError as error:
            # The path of the temporary file says nothing to a client.
            raise ConfigError(
                error.message.replace(f"{path}", _SPEC), key="workflow.invalid"
            ) from error


def _expand(source: Source) -> list[str]:
    # protection: no-commands-for-items
    raise ConfigError(
        f"`foreach` with `{source.kind}` is not accepted from a client",
        key="foreach.source",
        hint="list the items in the workflow",
    )


def _largest_cost(run: _Run) -> float:
    """Return what a run costs at most: its budget, as long as its cost is not known."""
    result = None if run.directory.is_live() else run.directory.run_result()
    known = result is not None and all(
        worker.cost_known or worker.never_ran for worker in result.results
    )
    # protection: unknown-costs-count-as-budgets
    return result.cost if result is not None and known else run.budget or 0.0


def _check(config: ParallelConfig, settings: ParallelConfig, whose: str) -> None:
    """Check that a client gets nothing that the user's settings do not grant.

    Raises:
        ConfigError: A setting grants more.
    """
    wider = [
        f"{whose}: `{key_of(field)}` is not accepted from a client, or grants more than the "
        "user's settings"
        for field in wider_settings(config, settings)
    ]
    if wider:
        raise mistakes(wider, _HINT, key="limits.widened")


def stop(repository: Repository, asked: arguments.Stop) -> answers.Stopped:
    """Ask a run's process to stop workers; what they wrote is committed."""
    with open_run(repository, asked.run) as history:
        chosen = asked.workers or tuple(history.workers)
        stopping = request_stop(history, chosen, kill=asked.kill)
        return answers.Stopped(run_id=history.run_id, stopping=tuple(stopping))
