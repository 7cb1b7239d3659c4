"""Describe the steps of a worker's place: agent, setup, teardown and checks; and their starts.

A step is described before anything of its worker runs. Its start is described when the step is
ordered: it contains what is known only then, and what must not be stored by the engine beforehand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from orchestrator.agents.base import AgentCommand, AgentSettings
from orchestrator.base.events import Stage
from orchestrator.config.network_access import Access
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.interface import labels as label
from orchestrator.engine.interface.spec import BrokerLink, ContainerSpec, TmpfsMount
from orchestrator.engine.places.place import Part, Place, Start, Step, StepLimits
from orchestrator.network.gateway.allowed_host import BROKER_NAME
from orchestrator.sandbox.supervision.launch import ContainerLimits
from orchestrator.state import secret_files
from orchestrator.worker.checked_run import CheckedSettings
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.workspace.caches import environment
from orchestrator.worker.workspace.layout import AGENT_STEP, HOME, WORKSPACE
from orchestrator.worker.workspace.mounts import Workspace
from orchestrator.worker.workspace.shared_files import variables

_TMP = "/tmp"  # noqa: S108  # the container's own
GIT_SETTINGS = "/run/git-settings"
"""Path of git's settings for the credential broker in a container."""
_IN_TURN = """\
exec 2>&1
number=0
for command; do
  number=$((number + 1))
  printf '[%s %s/%s] %s\\n' "$0" "$number" "$#" "$command"
  sh -c -- "$command" || exit
done"""
"""Shell script that runs commands in order and prints each one before it starts. Stdout and stderr
are one stream, so that their order is kept.
"""


def agent_step(worker: WorkerContext, workspace: Workspace) -> Step:
    """Return the step that performs the worker's task."""
    access, config = worker.settings.access.task, worker.config
    link = worker.broker_link(access)
    shares = bool(link or config.project.services or config.isolation.ports)
    return Step(
        name=AGENT_STEP,
        spec=_container(worker, workspace, access, link=link, shares=shares),
        limits=_step_limits(worker, workspace.growing, config.timeout),
    )


def agent_start(
    worker: WorkerContext, workspace: Workspace, secrets: Path | None, token: str | None
) -> Start:
    """Return what the agent gets when it is ordered.

    Args:
        worker: The worker.
        workspace: Its files.
        secrets: The directory with its secrets; None without secrets.
        token: The worker's token for the credential broker; None without a broker.
    """
    access, timeout = worker.settings.access.task, worker.config.timeout
    given = Given.of(worker, worker.broker_link(access), token)
    command = _agent_command(worker, given.config)
    deadline = {}
    if timeout is not None:
        ends = datetime.now(UTC) + timedelta(seconds=timeout)
        deadline[label.DEADLINE] = ends.isoformat(timespec="seconds")
    return Start(
        command=command.argv,
        labels=deadline,
        env={
            **_common_env(worker, workspace, secrets, access),
            **command.default_env,
            **given.inherited_env,
            **command.env,
            **given.config.isolation.env,
            **given.tokens,
            **given.git,
        },
    )


def _container(
    worker: WorkerContext,
    workspace: Workspace,
    access: Access,
    *,
    link: BrokerLink | None,
    shares: bool,
) -> ContainerSpec:
    """Return the container of the agent, from which those of other steps differ in a few fields.

    Args:
        worker: The worker.
        workspace: Its files.
        access: Network access of the container.
        link: Connection of the container to the credential broker.
        shares: Whether the container may need a network even if it must not reach any host.
    """
    config, limits, settings = worker.config, worker.config.limits, worker.settings
    return ContainerSpec(
        name=worker.name,
        image=settings.image,
        command=(),
        user=workspace.user_text,
        workdir=WORKSPACE,
        labels=worker.labels(role="worker"),
        mounts=(
            TmpfsMount(target=_TMP, size=limits.tmp),
            TmpfsMount(target=HOME, size=limits.tmp, mode="700"),
        ),
        egress=settings.egress.get(access) if shares or access.network != "none" else None,
        link=link,
        cpus=worker.cpus,
        memory=limits.memory,
        pids=limits.pids,
        open_files=limits.open_files,
        runtime=config.isolation.runtime,
        kept_output=limits.log_limit,
    )


def _step_limits(
    worker: WorkerContext, growing: tuple[str, ...], timeout: float | None
) -> StepLimits:
    limits = worker.config.limits
    return StepLimits(
        timeout=timeout,
        grace=limits.grace,
        disk=limits.disk,
        inodes=limits.inodes,
        limited=growing,
        output=limits.log_limit,
    )


@dataclass(frozen=True, kw_only=True)
class Given:
    """The settings and variables that one container of a worker gets, with or without API keys."""

    config: ParallelConfig
    inherited_env: Mapping[str, str]
    tokens: Mapping[str, str] = field(default_factory=dict)
    """Values of the variables for keys and base URLs: the worker's token, and URLs of the broker.
    """
    git: Mapping[str, str] = field(default_factory=dict)
    """Variable by which git reads private repositories through the broker."""

    @classmethod
    def of(cls, worker: WorkerContext, link: BrokerLink | None, token: str | None) -> "Given":
        """Return the settings and variables for a container.

        Args:
            worker: The worker.
            link: The connection to the credential broker; None without a broker.
            token: The container's token for the broker; None if it does not use the broker.
        """
        config, inherited_env, keys = worker.config, worker.settings.inherited_env, worker.keys
        if keys is None:
            return cls(config=config, inherited_env=inherited_env)
        env = worker.settings.without_keys(config.isolation.env)
        isolation = config.isolation.model_copy(update={"env": env})
        url = None if link is None else f"http://{BROKER_NAME}:{link.port}"
        known = url is not None and keys.api_base is not None
        api_base = f"{url}/{keys.api_base}" if known else None
        return cls(
            config=config.model_copy(update={"isolation": isolation, "api_base": api_base}),
            inherited_env=worker.settings.without_keys(inherited_env),
            tokens={} if url is None or token is None else keys.environment(url, token),
            # git for submodules keeps this variable; it drops settings that are variables.
            git={"GIT_CONFIG_SYSTEM": GIT_SETTINGS} if token and keys.repositories else {},
        )


def _agent_command(worker: WorkerContext, config: ParallelConfig) -> AgentCommand:
    """Return the command of the agent program, with limits according to the worker's budget."""
    share = worker.budget
    settings = AgentSettings.of(
        config, budget=share.budget, tokens=share.tokens, session=worker.session
    )
    return worker.agent.command(worker.spec, settings)


@dataclass(frozen=True, kw_only=True)
class Job:
    """Commands that run in a container of their own, such as the setup or a check."""

    stage: Stage
    name: str
    """Name of the job; the names of its log and its container contain it."""
    commands: tuple[str, ...]
    """Shell commands, which run in order until one of them fails."""
    timeout: float | None
    """Maximum number of seconds for all commands together; None: no limit."""
    access: Access
    title: str | None = None
    """Name of the check in messages, if the job is a check."""
    closed: bool = False
    """Whether the commands are untrusted, so that they get none of the user's variables."""
    reads: bool = False
    """Whether the commands read private repositories through the broker."""
    parts: tuple[Part, ...] = ()
    """Directories that this job alone sees, and may write to."""


def setup_job(settings: CheckedSettings) -> Job:
    """Return the job that runs the setup commands."""
    return _stage_job(settings, "setup", settings.config.project.setup, settings.access.setup)


def teardown_job(settings: CheckedSettings) -> Job:
    """Return the job that runs the teardown commands."""
    commands = settings.config.project.teardown
    return _stage_job(settings, "teardown", commands, settings.access.teardown)


def _stage_job(
    settings: CheckedSettings,
    stage: Literal["setup", "teardown"],
    commands: tuple[str, ...],
    access: Access,
) -> Job:
    return Job(
        stage=stage,
        name=stage,
        commands=commands,
        timeout=settings.config.project.setup_timeout or None,
        access=access,
        closed=stage in settings.config.closed_stages,
        reads=stage == "setup" and settings.access.setup_reads,
    )


def job_step(
    worker: WorkerContext, workspace: Workspace, job: Job, *, after: str | None = None
) -> Step:
    """Return the step that runs a job."""
    # Commands around the agent share the network of the services, even if that is a broker's alone.
    link = worker.broker_link(job.access) if job.reads and worker.keys is not None else None
    shares = bool(link or worker.config.project.services)
    agents = _container(worker, workspace, job.access, link=link, shares=shares)
    labels = worker.labels(role=job.stage)
    return Step(
        name=job.name,
        spec=replace(agents, name=f"{agents.name}-{job.name}", labels=labels),
        limits=_step_limits(worker, _growing(workspace, job), job.timeout),
        after=after,
    )


def job_start(
    worker: WorkerContext,
    workspace: Workspace,
    secrets: Path | None,
    job: Job,
    token: str | None,
) -> Start:
    """Return what a job gets when it is ordered.

    It gets no API keys of models: these are for the agent program only, unless the user passes them
    to all containers with `--env`.

    Args:
        worker: The worker.
        workspace: The files that the job works on.
        secrets: The directory with the worker's secrets; None without secrets.
        job: The job.
        token: Token with which the job reads repositories through the broker. None: the job reads
            no repositories.
    """
    # protection: commands-before-and-after-agent-get-no-token
    config = Given.of(worker, None, None).config
    # The base URL may contain a key too.
    # protection: no-base-url-for-found-files-commands
    shown = config.model_copy(update={"api_base": None}) if job.closed else config
    command = _agent_command(worker, shown)
    # protection: api-keys-reach-only-agent
    # protection: no-variables-for-found-files-commands
    return Start(
        command=("sh", "-c", _IN_TURN, job.name, *job.commands),
        env={
            **_common_env(worker, workspace, secrets, job.access),
            **variables(worker.spec, tuple(part.mount for part in job.parts)),
            **command.default_env,
            **command.env,
            **({} if job.closed else config.isolation.env),
            **Given.of(worker, None, token).git,
        },
    )


def job_limits(
    worker: WorkerContext, workspace: Workspace, place: Place, job: Job
) -> ContainerLimits:
    """Return the time, budget and resource limits of a job's container."""
    config = worker.config
    return ContainerLimits(
        worker_id=worker.number,
        place=place,
        step=job.name,
        timeout=job.timeout,
        # An installation may print nothing for a long time.
        limits=config.limits.model_copy(update={"idle_timeout": 0.0}),
        growing=_growing(workspace, job),
        budget=None,
        max_steps=config.max_steps,
        ports=worker.ports,
        stage=job.stage,
        name=job.title,
        switch=worker.run.switch,
    )


def _growing(workspace: Workspace, job: Job) -> tuple[str, ...]:
    """Return the names of the parts whose growth counts toward a job's limit on disk."""
    return (*workspace.growing, *(part.name for part in job.parts))


def _common_env(
    worker: WorkerContext, workspace: Workspace, secrets: Path | None, access: Access
) -> dict[str, str]:
    """Return the variables that all containers of a worker have in common."""
    offline = access.network == "none"
    return {
        "HOME": HOME,
        # The user has no entry in the image's passwd; programs may need these variables instead.
        "USER": "worker",
        "LOGNAME": "worker",
        # The work tree belongs to the worker; trusting any other directory harms only the worker.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        **worker.settings.company_env(access),
        # Each writable directory of a confined worker is a mount, at which git would stop
        # searching.
        **({"GIT_DISCOVERY_ACROSS_FILESYSTEM": "1"} if workspace.confined_to else {}),
        **environment(worker.config.project.caches, offline=offline),
        **variables(worker.spec, workspace.shared),
        **({} if secrets is None else {secret_files.VARIABLE: secret_files.TARGET}),
    }
