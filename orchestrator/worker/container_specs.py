"""The containers of one worker, wholly described: its own, and the one that harvests it."""

from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from orchestrator.agents.base import AgentSettings
from orchestrator.config.container import Limits, Network
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.spec import BindMount, ContainerSpec, TmpfsMount
from orchestrator.events import Stage
from orchestrator.execution.launch import ContainerLimits
from orchestrator.state import secret_files
from orchestrator.text.sanitize import one_line
from orchestrator.worker.context import RunContext, labels
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workspace.caches import environment
from orchestrator.workspace.mounts import HARVEST, HOME, OUT, Workspace
from orchestrator.workspace.private_git import OBJECTS, STORE, WORKSPACE
from orchestrator.workspace.shared_files import variables

_TMP = "/tmp"  # noqa: S108  # the container's own
_HARVEST_MEMORY = 1024**3
ROOM = "ORCHESTRATOR_HARVEST_ROOM"
"""Tells `pack_work` how many bytes it may write."""
RESERVED = "ORCHESTRATOR_HARVEST_RESERVED"
"""Tells `pack_work` where no file of a worker may be."""
_HARVEST_TMP = 64 * 1024**2
_MOMENT = 128 * 1024**2
"""Bytes that a fast writer gets to the disk between its limit and its end."""
_IN_TURN = """\
exec 2>&1
number=0
for command; do
  number=$((number + 1))
  printf '[%s %s/%s] %s\\n' "$0" "$number" "$#" "$command"
  sh -c -- "$command" || exit
done"""
"""Runs commands, and says which one it has come to; all that they print keeps its order."""
_WITH_STATES = """\
import sys, types
_states = types.ModuleType("git_states")
sys.modules["orchestrator.worker.in_container.git_states"] = _states
exec({states!r}, _states.__dict__)
"""
_MESSAGE = "architect: uncommitted work of worker {worker}\n\nTask: {task}\n"


def worker_container(
    run: RunContext,
    spec: WorkerSpec,
    workspace: Workspace,
    secrets: Path | None,
    *,
    network: Network | None = None,
) -> ContainerSpec:
    """Describe a worker's container.

    Args:
        run: The run.
        spec: The worker.
        workspace: Its files.
        secrets: The directory that holds its secrets, if it has any.
        network: Default: the agent's.
    """
    config, limits = run.config, run.config.limits
    command = run.agent.command(spec, AgentSettings.of(config))
    is_open = (network or config.isolation.network) == "open"
    return ContainerSpec(
        name=f"orchestrator-{run.directory.run_id}-{spec.worker_id}",
        image=run.image,
        command=command.argv,
        user=workspace.user_text,
        workdir=WORKSPACE,
        labels=labels(run, spec, role="worker"),
        env={
            **_given(run, spec, workspace, secrets, offline=not is_open),
            **command.default_env,
            **run.inherited_env,
            **command.env,
            **config.isolation.env,
        },
        mounts=(
            *workspace.mounts(),
            *workspace.caches,
            *workspace.shared,
            *_secret_mounts(secrets),
            TmpfsMount(target=_TMP, size=limits.tmp),
            TmpfsMount(target=HOME, size=limits.tmp, mode="700"),
        ),
        network=run.network if is_open else "none",
        egress=run.egress if is_open else None,
        cpus=run.cpus,
        memory=limits.memory,
        pids=limits.pids,
        open_files=limits.open_files,
        runtime=config.isolation.runtime,
        kept_output=limits.log_limit,
    )


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a container of a worker's runs that is not its agent's."""

    stage: Stage
    name: str
    """Of its log, and in its container's name."""
    commands: tuple[str, ...]
    """One after the other, until one fails."""
    timeout: float | None
    """Seconds for all of them."""
    network: Network
    title: str | None = None
    """Which check it is, for people."""
    closed: bool = False
    """Nobody vouches for its commands: they get none of the user's variables."""


def job_container(
    run: RunContext, spec: WorkerSpec, workspace: Workspace, secrets: Path | None, job: Job
) -> ContainerSpec:
    """Describe the container of what runs before or after the agent.

    It has what the agent has, but for the keys of models: those are for the agent program alone,
    unless the user hands them to everything by `--env`.

    Args:
        run: The run.
        spec: The worker.
        workspace: The files it works on.
        secrets: The directory that holds the worker's secrets, if it has any.
        job: What it is to do.
    """
    workspace = replace(workspace, read_only=False)
    worker = worker_container(run, spec, workspace, secrets, network=job.network)
    # The base URL may hold a key too.
    config = run.config.model_copy(update={"api_base": None}) if job.closed else run.config
    command = run.agent.command(spec, AgentSettings.of(config))
    return replace(
        worker,
        name=f"{worker.name}-{job.name}",
        env={
            **_given(run, spec, workspace, secrets, offline=job.network != "open"),
            **command.default_env,
            **command.env,
            **({} if job.closed else config.isolation.env),
        },
        command=("sh", "-c", _IN_TURN, job.name, *job.commands),
        labels=labels(run, spec, role=job.stage),
    )


def job_limits(
    run: RunContext, spec: WorkerSpec, workspace: Workspace, job: Job
) -> ContainerLimits:
    """Return how long and how much a job may."""
    return ContainerLimits(
        worker_id=spec.worker_id,
        timeout=job.timeout,
        # An installation may print nothing for long.
        limits=run.config.limits.model_copy(update={"idle_timeout": 0.0}),
        writable=workspace.writable(),
        budget=None,
        max_steps=run.config.max_steps,
        ports=run.ports.of(spec.worker_id, run.config.isolation.ports),
        stage=job.stage,
        name=job.title,
        switch=run.switch,
    )


def _given(
    run: RunContext, spec: WorkerSpec, workspace: Workspace, secrets: Path | None, *, offline: bool
) -> dict[str, str]:
    """Return the variables that every container of a worker has."""
    return {
        **_environment(),
        # Each directory of a confined worker is a mount, which git would not look beyond.
        **({"GIT_DISCOVERY_ACROSS_FILESYSTEM": "1"} if workspace.confined_to else {}),
        **environment(run.config.project.caches, offline=offline),
        **variables(spec, workspace.shared),
        **({} if secrets is None else {secret_files.VARIABLE: secret_files.TARGET}),
    }


def _secret_mounts(secrets: Path | None) -> tuple[BindMount, ...]:
    if secrets is None:
        return ()
    return (BindMount(source=secrets, target=secret_files.TARGET, read_only=True),)


def _environment() -> dict[str, str]:
    return {
        "HOME": HOME,
        # The user has no entry in the image's passwd; programs that ask get these.
        "USER": "worker",
        "LOGNAME": "worker",
        # Its own work tree belongs to the worker; anything else it meets is its own affair.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }


def helper_script() -> str:
    """Return the program of the harvest: two modules as one text, for a Python without ours."""
    package = files("orchestrator.worker.in_container")
    states = package.joinpath("git_states.py").read_text()
    return _WITH_STATES.format(states=states) + package.joinpath("pack_work.py").read_text()


def harvest_room(limits: Limits) -> int:
    """Return the bytes that a worker's changes may have: on the disk, and as content of git-lfs."""
    # A worker is stopped a moment after its limit, and what it wrote until then counts.
    return 2 * limits.disk + _MOMENT


def harvest_container(
    run: RunContext, spec: WorkerSpec, workspace: Workspace, *, onto: str | None = None
) -> ContainerSpec:
    """Describe the container that commits and packs what a dead worker wrote; no network.

    Args:
        run: The run.
        spec: The worker.
        workspace: Its files.
        onto: A commit that the files alone are put on top of, without the worker's own commits.
    """
    task = one_line(run.redactor.text(spec.task), limit=500)
    message = _MESSAGE.format(worker=spec.worker_id, task=task)
    places = (WORKSPACE, STORE, HARVEST, OBJECTS, OUT, workspace.written)
    arguments = (*places, run.base, spec.branch, message, *([onto] if onto else []))
    return ContainerSpec(
        name=f"orchestrator-{run.directory.run_id}-{spec.worker_id}-harvest",
        image=BASE_IMAGE,
        command=("python3", "-I", "-S", "-c", helper_script(), *arguments),
        user=workspace.user_text,
        workdir="/",
        env={
            ROOM: str(harvest_room(run.config.limits)),
            RESERVED: "/".join(run.repository.reserved()),
        },
        labels=labels(run, spec, role="harvest"),
        mounts=(*workspace.harvest_mounts(), TmpfsMount(target=_TMP, size=_HARVEST_TMP)),
        cpus=run.cpus,
        memory=max(run.config.limits.memory, _HARVEST_MEMORY),
        open_files=run.config.limits.open_files,
    )
