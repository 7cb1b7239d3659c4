"""Reserve the numbers of a run's workers, and record the run's plan."""

import os
from datetime import UTC, datetime

from orchestrator.base.errors import ConfigError, OrchestratorError, RepositoryError
from orchestrator.base.files.shared import make_shared
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.planning import plan_tasks
from orchestrator.engine.interface.run_engine import RunEngine
from orchestrator.repository.checkouts.snapshot import snapshot_checkout
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import base_ref
from orchestrator.runs.live.recorder import ClaimedRun
from orchestrator.runs.planning.capacity import check_worktrees
from orchestrator.runs.planning.naming import name_workers, note_names
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import Inputs, RunRecord, keep_inputs, new_run_id
from orchestrator.worker.checked_run import CheckedRequest, CheckedRun
from orchestrator.worker.steps.dotenv import check_dotenv
from orchestrator.worker.workspace.shared_files import keep_given

COMMANDS = ("setup", "teardown", "checks")
SERVICE_VARIABLES = "variables of service "
"""What the name of a service follows, if the values of the service's variables are not recorded."""


def reserve(checked: CheckedRun, *, warms: bool = False) -> ClaimedRun:
    """Create the run's directory, record and branches, and lock the run for this process.

    `warms` marks a run that only fills the shared caches for later runs.

    Raises:
        OrchestratorError: The workers' numbers could not be reserved; nothing was created.
    """
    request = checked.request
    repository, config = request.repository, request.settings.config
    base = base_commit(repository, config)
    check_dotenv(repository, base, config.project.dotenv)
    directory = RunDirectory(repository.state_dir / "runs" / new_run_id())
    with repository.lock():
        check_worktrees(repository, config)
        workers = name_workers(
            repository, config, base,
            lambda first: plan_tasks(
                config, request.workflow, programs=request.programs, first=first
            ),
        )  # fmt: skip
        _check_shown(request, workers)
        note_names(repository, workers, config)
        repository.exclude_worktrees()
        record = RunRecord(
            run_id=directory.run_id,
            created_at=datetime.now(UTC),
            top=repository.top,
            base=base,
            engine=checked.features.version,
            engine_used=RunEngine(
                kind=checked.engine.name,
                id=checked.features.id,
                address=checked.features.address,
                version=checked.features.version,
                transfer=checked.features.transfer,
            ),
            config=config,
            workers=workers,
            private=_private(request, workers),
            workflow=request.workflow,
            programs=dict(request.programs),
            warms=warms,
        )
        try:
            shown = request.redactor.model(record)
            directory.create(shown.public_json(), shown.public())
            keep_given(directory, request.redactor, request.given)
            repository.claim([worker.branch for worker in workers], base, keep=base_ref(record))
        except (OrchestratorError, OSError) as error:
            directory.release()
            directory.remove()
            if isinstance(error, OSError):
                raise RepositoryError(
                    f"cannot record the run: {error}", key="run.unrecordable"
                ) from error
            raise
    keep_private(request, record)
    return ClaimedRun(record, directory)


def _check_shown(request: CheckedRequest, workers: tuple[WorkerSpec, ...]) -> None:
    """Reject names that contain a secret: recorded names are redacted, so cleanup would fail."""
    for worker in workers:
        shown = request.redactor.model(worker)
        same = (shown.directory, shown.branch) == (worker.directory, worker.branch)
        # protection: name-with-secret-refused
        if worker.is_named and not same:
            raise ConfigError(
                "a name from `worktree_dir` or `branch` contains the value of a secret",
                key="name.secret",
                hint="choose another name: directory and branch names are visible to others",
            )


def keep_private(request: CheckedRequest, record: RunRecord) -> None:
    """Keep in memory what the record does not have, for a process that resumes the run."""
    secrets = request.secrets
    if record.private or request.settings.inherited_env or secrets.files:
        inputs = Inputs(
            config=request.settings.config,
            workers=record.workers,
            workflow=record.workflow,
            programs=record.programs,
            inherited_env=dict(request.settings.inherited_env),
            secrets=dict(secrets.values),
            agent_config=secrets.agent_config,
        )
        keep_inputs(record.run_id, inputs, os.environ)


def undo(repository: Repository, claimed: ClaimedRun) -> None:
    """Remove everything that `reserve` created, before anything else of the run has started."""
    record = claimed.record
    for worker in record.workers:
        repository.drop_branch(worker.branch, at=record.base)
    keep = base_ref(record)
    if keep is not None:
        repository.git.run("update-ref", "-d", keep)
    claimed.directory.remove()


def _private(request: CheckedRequest, workers: tuple[WorkerSpec, ...]) -> tuple[str, ...]:
    """Return the names of the settings whose values are not recorded."""
    config = request.settings.config
    shown = [request.redactor.model(worker) for worker in workers]
    stages = request.redactor.model(config.project)
    tasks = request.redactor.model(request.workflow) if request.workflow else None
    services = {
        **config.project.services,
        **{
            f"{task.id}: {name}": service
            for task in (request.workflow.tasks if request.workflow else ())
            for name, service in (task.settings.services or {}).items()
        },
    }
    configs = [config, *request.programs.values()]
    missing = {
        "workflow": tasks != request.workflow,
        "api_base": any(program.api_base is not None for program in configs),
        "notify": config.triggers.notify is not None,
        "tasks": shown != list(workers),
        **{
            f"{SERVICE_VARIABLES}{name}": bool(service.env or service.variables)
            for name, service in services.items()
        },
        **{name: getattr(stages, name) != getattr(config.project, name) for name in COMMANDS},
    }
    names = dict.fromkeys(name for program in configs for name in program.isolation.env)
    return (*names, *(name for name, is_missing in missing.items() if is_missing))


def base_commit(repository: Repository, config: ParallelConfig) -> str:
    """Return the run's base commit; with `include_uncommitted`, a snapshot of the checkout.

    Raises:
        OrchestratorError: There is no such commit, or the checkout could not be read.
    """
    head = repository.resolve(config.base)
    if not config.include_uncommitted:
        return head
    state_dir = repository.state_dir
    make_shared(state_dir)
    return snapshot_checkout(
        repository,
        parent=head,
        message="architect: uncommitted changes of the checkout",
        scratch=state_dir / f"index-{os.getpid()}",
    )
