"""List the settings of a run and of its workers, without the values of environment variables."""

from collections.abc import Sequence

from orchestrator.base.text.quantities import count, short_duration, size
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.planning import config_of
from orchestrator.faces.web.rendering import dollars
from orchestrator.state.run_record import RunRecord

Settings = list[tuple[str, str]]
"""Names and values of settings, as text to show on pages."""
_MOST_NAMES = 12


def settings_of_run(plan: RunRecord) -> Settings:
    """Return the settings of a run, to show on its page."""
    config = plan.config
    found = [
        ("Workers at once", "as many as fit" if config.auto_workers else str(config.workers)),
        ("Budget of the run", _budget(config.budget_total)),
        *_settings(config),
        ("Values not recorded", _names(plan.private)),
    ]
    return [(name, one_line(value, limit=300)) for name, value in found if value]


def settings_of_worker(plan: RunRecord, name: str | None) -> Settings:
    """Return the settings of a worker, to show on its page.

    Args:
        plan: The run's plan.
        name: Id of the worker's task in a workflow; None without a workflow.
    """
    config = config_of_worker(plan, name)
    return [(name, one_line(value, limit=300)) for name, value in _settings(config) if value]


def config_of_worker(plan: RunRecord, name: str | None) -> ParallelConfig:
    """Return the configuration of a worker; see `settings_of_worker`."""
    tasks = plan.workflow.tasks if plan.workflow else ()
    task = next((task for task in tasks if task.id == name), None)
    return config_of(plan.config, task, plan.programs) if task else plan.config


def _settings(config: ParallelConfig) -> Settings:
    limits, isolation = config.limits, config.isolation
    setup = len(config.project.setup)
    return [
        ("Agent program", config.agent_cli),
        ("Image", config.image or "of the agent program"),
        ("Time limit", _seconds(config.timeout_per_worker)),
        ("Time limit without output", _seconds(limits.idle_timeout)),
        ("Budget", _budget(config.budget_per_worker)),
        ("CPUs", f"{limits.cpus:g}" if limits.cpus else "2, or fewer on a smaller machine"),
        ("Memory", size(limits.memory) if limits.memory else "not limited"),
        ("Disk", size(limits.disk)),
        ("Processes", f"{limits.pids:,}"),
        ("Network", isolation.network),
        ("Allowed hosts", _names(isolation.allow)),
        ("API keys", isolation.keys),
        ("Worktree", "read-only" if isolation.read_only else ""),
        ("May change", _names(config.triggers.paths)),
        ("Retries", count(config.retries, "retry").replace("retrys", "retries")),
        ("Setup commands", str(setup) if setup else ""),
        ("Checks", _names([check.name or check.run for check in config.project.checks])),
        ("Services", _names(list(config.project.services))),
    ]


def _seconds(limit: float) -> str:
    return short_duration(limit) if limit else "none"


def _budget(amount: float | None) -> str:
    return "none" if amount is None else dollars(amount)


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
