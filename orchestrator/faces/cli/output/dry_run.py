"""Render the plan of a run for `--dry-run`."""

import json

from orchestrator.base.text.quantities import duration
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.faces.cli.output.formats import size, table, terminal_width
from orchestrator.runs.planning.dry_run import RunPlan

_HEADING = ("WORKER", "TASK", "MODEL", "BRANCH", "WORKTREE")


def _worktree(plan: RunPlan, spec: WorkerSpec) -> str:
    return "" if plan.worktrees == "none" else str(plan.top / spec.directory)


def plan_table(plan: RunPlan) -> str:
    """Return the output of `--dry-run`."""
    rows = [_HEADING]
    for spec in plan.workers:
        worktree = _worktree(plan, spec) or "-"
        task, model = one_line(spec.task), one_line(spec.model_name)
        rows.append((str(spec.worker_id), task, model, spec.branch, worktree))
    timeout = "none" if plan.timeout is None else duration(plan.timeout)
    facts = {"base": plan.base, "image": plan.image, "timeout": timeout, **_terms(plan)}
    lines = [f"{name}: {value}" for name, value in facts.items()]
    return "\n".join([table(rows, width=terminal_width()), "", *lines])


def _terms(plan: RunPlan) -> dict[str, str]:
    """Return the limits and settings of workers as text by name, including presets and defaults."""
    limits = plan.limits
    cpus = "2 or all CPUs" if limits.cpus is None else f"{limits.cpus:g} CPUs"
    sizes = {"memory": limits.memory, "tmp": limits.tmp, "disk": limits.disk}
    limit_texts = [cpus, *(f"{size(number)} {name}" for name, number in sizes.items())]
    idle = limits.idle_timeout
    terms = {
        "preset": plan.preset or "",
        "limits": ", ".join([*limit_texts, f"{limits.pids} pids", f"{limits.inodes} inodes"]),
        "idle timeout": duration(idle) if idle else "none",
        "grace": duration(limits.grace),
        "runtime": plan.runtime or "",
        "network": plan.network,
        "allow": ", ".join(plan.allow),
        "ports": ", ".join(f"{name}={inside}" for name, inside in plan.ports.items()),
        "services": ", ".join(f"{name} ({image})" for name, image in plan.services.items()),
        "history": plan.history,
        "caches": ", ".join(plan.caches),
        "setup": "; ".join(map(one_line, plan.setup)),
        "teardown": "; ".join(map(one_line, plan.teardown)),
        "checks": "; ".join(map(one_line, plan.checks)),
        "keys": "" if plan.keys == "env" else plan.keys,
        "env": ", ".join(plan.env),
        "secrets": ", ".join(plan.secrets),
    }
    return {name: value for name, value in terms.items() if value}


def plan_json(plan: RunPlan) -> str:
    """Return the output of `--dry-run --json`."""
    workers = [
        {
            "worker_id": spec.worker_id,
            **({"name": spec.name} if spec.name else {}),
            "task": spec.task,
            "model": spec.model_name,
            "branch": spec.branch,
            "worktree_path": _worktree(plan, spec),
        }
        for spec in plan.workers
    ]
    facts = plan.model_dump(mode="json", exclude={"workers", "top", "notices"})
    return json.dumps({**facts, "workers": workers}, indent=2)
