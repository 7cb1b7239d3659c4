"""Describe the containers of a worker: agent, setup, teardown and checks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.agents.base import AgentCommand, AgentSettings
from orchestrator.broker.repositories import GIT_FILE
from orchestrator.config.company import BUNDLE
from orchestrator.config.network_access import Access
from orchestrator.config.run import ParallelConfig
from orchestrator.engine.spec import BindMount, BrokerLink, ContainerSpec, TmpfsMount
from orchestrator.events import Stage
from orchestrator.execution.launch import ContainerLimits
from orchestrator.gateway.allowed_host import BROKER_NAME
from orchestrator.state import secret_files
from orchestrator.worker.context import WorkerContext
from orchestrator.workspace.caches import environment
from orchestrator.workspace.layout import HOME, WORKSPACE
from orchestrator.workspace.mounts import Workspace
from orchestrator.workspace.shared_files import variables

_TMP = "/tmp"  # noqa: S108  # the container's own
_GIT_SETTINGS = "/run/git-settings"
CA_FILE = "ca-bundle.crt"
"""Name of the file with certificate authorities in a run's directory."""
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


def worker_container(
    worker: WorkerContext,
    workspace: Workspace,
    secrets: Path | None,
    *,
    access: Access | None = None,
    token: str | None = None,
) -> ContainerSpec:
    """Return the specification of a worker's container for the agent.

    Args:
        worker: The worker.
        workspace: Its files.
        secrets: The directory with its secrets; None without secrets.
        access: Network access of the container. Default: that of the agent.
        token: The container's token for the credential broker; None without a broker. With
            `access` but without a token, the container is not connected to the broker.
    """
    config, limits, settings = worker.config, worker.config.limits, worker.settings
    chosen = access or settings.access.task
    link = worker.broker_link(chosen) if access is None or token else None
    given = Given.of(worker, link, token)
    command = _agent_command(worker, given.config)
    # Commands around the agent share the network of the services, even if that is a broker's alone.
    shares = bool(link or config.project.services or (access is None and config.isolation.ports))
    egress = settings.egress.get(chosen) if shares or chosen.network != "none" else None
    return ContainerSpec(
        name=worker.name,
        image=settings.image,
        command=command.argv,
        user=workspace.user_text,
        workdir=WORKSPACE,
        labels=worker.labels(role="worker"),
        env={
            **_common_env(worker, workspace, secrets, chosen),
            **command.default_env,
            **given.inherited_env,
            **command.env,
            **given.config.isolation.env,
            **given.tokens,
            **given.git,
        },
        mounts=(
            *workspace.mounts(),
            *workspace.caches,
            *workspace.shared,
            *_file_mounts(worker, secrets, given.git),
            TmpfsMount(target=_TMP, size=limits.tmp),
            TmpfsMount(target=HOME, size=limits.tmp, mode="700"),
        ),
        network="none" if egress is None else worker.run.network,
        egress=egress,
        link=link,
        cpus=worker.cpus,
        memory=limits.memory,
        pids=limits.pids,
        open_files=limits.open_files,
        runtime=config.isolation.runtime,
        kept_output=limits.log_limit,
    )


def _file_mounts(
    worker: WorkerContext, secrets: Path | None, git: Mapping[str, str]
) -> Iterator[BindMount]:
    """Yield mounts of secrets, of git's settings for the broker, and of a company's authorities."""
    if secrets is not None:
        # protection: secrets-mounted-read-only
        yield BindMount(source=secrets, target=secret_files.TARGET, read_only=True)
    if git:
        source = worker.directory / GIT_FILE
        yield BindMount(source=source, target=_GIT_SETTINGS, read_only=True)
    if worker.settings.company.ca is not None:
        source = worker.run.directory.path / CA_FILE
        yield BindMount(source=source, target=BUNDLE, read_only=True)


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
            git={"GIT_CONFIG_SYSTEM": _GIT_SETTINGS} if token and keys.repositories else {},
        )


def _agent_command(worker: WorkerContext, config: ParallelConfig) -> AgentCommand:
    """Return the command of the agent program, with limits according to the worker's budget."""
    share = worker.budget
    settings = AgentSettings.of(config, budget=share.budget, tokens=share.tokens)
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


def job_container(
    worker: WorkerContext,
    workspace: Workspace,
    secrets: Path | None,
    job: Job,
    *,
    token: str | None = None,
) -> ContainerSpec:
    """Return the specification of a container that runs before or after the agent.

    The container gets no API keys of models: these are for the agent program only, unless the user
    passes them to all containers with `--env`.

    Args:
        worker: The worker.
        workspace: The files that the job works on.
        secrets: The directory with the worker's secrets; None without secrets.
        job: The job.
        token: Token with which the job reads repositories through the broker. None: the job reads
            no repositories.
    """
    workspace = replace(workspace, read_only=False)
    # protection: commands-before-and-after-agent-get-no-token
    config = Given.of(worker, None, None).config
    agents = worker_container(worker, workspace, secrets, access=job.access, token=token)
    # The base URL may contain a key too.
    # protection: no-base-url-for-found-files-commands
    shown = config.model_copy(update={"api_base": None}) if job.closed else config
    command = _agent_command(worker, shown)
    # protection: api-keys-reach-only-agent
    # protection: no-variables-for-found-files-commands
    return replace(
        agents,
        name=f"{agents.name}-{job.name}",
        env={
            **_common_env(worker, workspace, secrets, job.access),
            **command.default_env,
            **command.env,
            **({} if job.closed else config.isolation.env),
            **Given.of(worker, agents.link, token).git,
        },
        command=("sh", "-c", _IN_TURN, job.name, *job.commands),
        labels=worker.labels(role=job.stage),
    )


def job_limits(worker: WorkerContext, workspace: Workspace, job: Job) -> ContainerLimits:
    """Return the time, budget and resource limits of a job's container."""
    config = worker.config
    return ContainerLimits(
        worker_id=worker.number,
        timeout=job.timeout,
        # An installation may print nothing for a long time.
        limits=config.limits.model_copy(update={"idle_timeout": 0.0}),
        writable=workspace.writable(),
        budget=None,
        max_steps=config.max_steps,
        ports=worker.ports,
        stage=job.stage,
        name=job.title,
        switch=worker.run.switch,
    )


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
