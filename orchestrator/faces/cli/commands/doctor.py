"""`orchestrator doctor`: check what a run needs, and report what is missing."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from orchestrator.agents.settings_check import (
    check_length,
    check_supported,
    choose_agent,
    missing_keys,
    user_variables,
    with_needed_broker,
)
from orchestrator.base.errors import ImageNotFoundError, OrchestratorError, UnsupportedError
from orchestrator.base.machine import boot_id
from orchestrator.base.text.quantities import size as amount
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.derived import with_isolation
from orchestrator.config.loading.loading import config_file, load_config
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.settings.values import Limit
from orchestrator.config.sizing import room
from orchestrator.engine import load_engine
from orchestrator.engine.egress import check_runtime, has_own_kernel
from orchestrator.engine.images.names import BASE_IMAGE, BROKER_IMAGE, image_hint
from orchestrator.engine.interface.diagnosis import DiagnosingEngine
from orchestrator.engine.interface.features import Enforcement, EngineFeatures
from orchestrator.engine.interface.protocol import Engine
from orchestrator.engine.places.place import ClusterEngine
from orchestrator.engine.probes.gateway_probe import gateway_problem, open_network_problem
from orchestrator.engine.probes.limits_probe import probe_limits
from orchestrator.faces.cli.check import Check, State, check_line, check_of_error
from orchestrator.faces.cli.options import Config, Json
from orchestrator.faces.cli.output.messages import show, show_json
from orchestrator.repository.git import command as git
from orchestrator.repository.repository import Repository, find_top
from orchestrator.repository.settings import is_partial
from orchestrator.runs.planning.enforcement import unenforced_hint
from orchestrator.runs.planning.machine_check import crowding, machine_problems
from orchestrator.runs.planning.problems import Problems
from orchestrator.state.secret_files import read_secrets
from orchestrator.worker.workspace.overlay_probe import tested_way

LOW_DISK = 2 * 1024**3
_HOW: dict[str, tuple[State, str]] = {
    "kernel": ("ok", "enforced by the kernel (tested)"), "watched": ("ok", "watched by the run"),
    "no": ("warn", "not enforced"), "unknown": ("unknown", "not tested"),
}  # fmt: skip
_WAYS = {
    "overlay": "overlay", "bind": "bind mounts with a full checkout per worker",
    "streams": "copies are sent to the engine (`transfer: streams`)",
}  # fmt: skip


def doctor(
    config: Config = None,
    engine: Annotated[
        str | None, typer.Option(metavar="NAME", help="Engine to check: `docker` or `kubernetes`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that this machine can start a run."""
    checks = list(_checks(config, engine))
    if as_json:
        ok = not any(check.exit_code for check in checks)
        limits = {limit: check.enforced for check in checks for limit in check.limits}
        shown = [asdict(check) for check in checks]
        for entry in shown:
            del entry["limits"], entry["enforced"]
        show_json(json.dumps({"ok": ok, "checks": shown, "limits": limits}, indent=2))
    else:
        show("\n".join(map(check_line, checks)))
    raise typer.Exit(max(check.exit_code for check in checks))


def _checks(file: Path | None, name: str | None) -> Iterator[Check]:
    yield check_git()
    yield from _repository()
    try:
        top = find_top(Path.cwd())
    except OrchestratorError:
        top = None
    check, config = _configuration(file, top)
    yield check
    yield from _agent(config, top)
    try:
        engine = load_engine(name or config.isolation.engine)
    except OrchestratorError as error:
        yield check_of_error("engine", error)
        return
    with closing(engine):
        if isinstance(engine, ClusterEngine):
            engine.configure(config.cluster)
        yield from _engine(engine, config)


def _configuration(file: Path | None, top: Path | None) -> tuple[Check, ParallelConfig]:
    """Return the check of the configuration, and the configuration or, if invalid, defaults."""
    # The task of a run is usually given on the command line, so any task will do.
    task = {"tasks": ("any",)}
    path, _ = config_file(os.environ, top, file)
    try:
        config = load_config(options=task, environ=os.environ, top=top, file=file)
    except OrchestratorError as error:
        return check_of_error("configuration", error), ParallelConfig(tasks=task["tasks"])
    detail = str(path or "there is no file; the defaults apply")
    return Check(name="configuration", detail=detail), config


def _agent(config: ParallelConfig, top: Path | None) -> Iterator[Check]:
    problems = Problems()
    own = None if config.agent_config is None else (top or Path()) / config.agent_config
    problems.attempt(read_secrets, config.isolation.secrets, os.environ, agent_config=own)
    chosen = problems.attempt(choose_agent, config, None)
    if not chosen.has_problem:
        agent, _ = chosen.value
        variables = problems.attempt(user_variables, config, agent, os.environ)
        inherited_env = {} if variables.has_problem else variables.value
        config = with_needed_broker(config, agent, inherited_env)
        problems.attempt(check_supported, config, agent)
        problems.attempt(check_length, config, agent)
        missing = missing_keys(config, agent, inherited_env)
        if missing is not None:
            # Models are usually chosen on the command line, so a missing key is only a warning.
            yield Check(name="key", state="warn", detail=missing.message, hint=missing.hint)
    yield from (check_of_error("agent", error) for error in problems.errors)


def check_git() -> Check:
    """Check that git is installed, and recent enough."""
    try:
        installed = git.version()
    except OrchestratorError as error:
        return check_of_error("git", error)
    version = ".".join(map(str, installed))
    if installed >= git.MINIMUM_VERSION:
        return Check(name="git", detail=version)
    minimum = ".".join(map(str, git.MINIMUM_VERSION))
    return Check(
        name="git",
        state="fail",
        detail=f"version {version} is too old",
        hint=f"install git {minimum} or newer",
        exit_code=3,
    )


def _repository() -> Iterator[Check]:
    try:
        repository = Repository(Path.cwd())
        head = repository.resolve("HEAD")
    except OrchestratorError as error:
        yield check_of_error("repository", error)
        return
    shallow = ", shallow" if repository.shallow_commits() else ""
    partial = ", partial clone: no history for workers" if is_partial(repository.git_config) else ""
    yield Check(name="repository", detail=f"{repository.top}, HEAD {head[:12]}{shallow}{partial}")
    free = shutil.disk_usage(repository.top).free
    hint = "free some space: a few workers may fill the disk" if free < LOW_DISK else None
    yield Check(
        name="disk", state="warn" if hint else "ok", detail=f"{amount(free)} free", hint=hint
    )


def _engine(engine: Engine, config: ParallelConfig) -> Iterator[Check]:
    try:
        features = engine.check(images=(), runtime=None)
    except OrchestratorError as error:
        yield check_of_error("engine", error)
        return
    place = f", at `{one_line(features.address)}`" if features.address else ""
    here = features.address.startswith("unix://")
    yield Check(name="engine", detail=features.version + ("" if here else place))
    if isinstance(engine, DiagnosingEngine):
        yield from _findings(engine, features, config)
        return
    runtime = config.isolation.runtime
    yield _runtimes(features, runtime)
    yield _system_calls(features, runtime or features.default_runtime or None)
    known = runtime if runtime in features.runtimes else features.default_runtime or None
    yield from _limits(engine, config, known)
    yield _worktrees(engine, features, with_isolation(config, runtime=known))
    yield _open_network(engine, features, runtime or known)
    yield _allow_lists(engine, features, runtime or known)
    for image, required in _images(config).items():
        yield check_image(engine, image, required=required)
    problems = [check_of_error("machine", error) for error in machine_problems(config, features)]
    yield from problems or [_room(features, config)]


def _findings(
    engine: DiagnosingEngine, features: EngineFeatures, config: ParallelConfig
) -> Iterator[Check]:
    """Return what an engine found out by itself."""
    enforced = dict(features.enforced)
    # An engine that tests its network says so by a finding.
    enforced.pop("network", None)
    try:
        repository = str(Repository(Path.cwd()).common_dir)
    except OrchestratorError:
        # Another check says so. An administrator who prepares a cluster may have no repository.
        repository = str(Path.cwd())
    try:
        for finding in engine.diagnose(repository, tuple(_images(config))):
            if finding.enforced is not None:
                enforced["network"] = "kernel" if finding.enforced else "no"
            yield Check(
                name=finding.name, state=finding.state, detail=one_line(finding.detail),
                hint=finding.hint, exit_code=finding.exit_code,
            )  # fmt: skip
    except OrchestratorError as error:
        yield check_of_error("engine", error)
        return
    yield from _enforcements(enforced, config, {"kernel": ("ok", "enforced by the nodes")})


def _runtimes(features: EngineFeatures, wanted: str | None) -> Check:
    names = ", ".join(features.runtimes)
    configured = f"configured: {names}" if names else "only the engine's default"
    if wanted is None or wanted in features.runtimes:
        return Check(name="runtimes", detail=configured)
    detail = f"no `{wanted}`; {configured}"
    return Check(name="runtimes", state="fail", detail=detail, exit_code=3)


def _system_calls(features: EngineFeatures, runtime: str | None) -> Check:
    if not features.seccomp:
        detail = "not filtered: the engine or its kernel has no seccomp"
        return Check(
            name="system calls", state="warn", detail=detail,
            hint="use an engine and a kernel with seccomp: without it, workers can open sockets of "
            "AF_VSOCK and AF_ALG, and use io_uring",
        )  # fmt: skip
    if has_own_kernel(runtime):
        return Check(name="system calls", detail=f"filtered by the runtime `{runtime}`")
    return Check(name="system calls", detail="filtered: no AF_VSOCK, no AF_ALG, no io_uring")


def _for_containers(engine: Engine) -> Repository:
    """Return the repository, if containers can be started for tests.

    Raises:
        OrchestratorError: There is no repository, or no base image.
    """
    repository = Repository(Path.cwd())
    if engine.image_info(BASE_IMAGE) is None:
        raise ImageNotFoundError("not checked: the base image is missing", key="image.missing")
    return repository


def _limits(engine: Engine, config: ParallelConfig, runtime: str | None) -> Iterator[Check]:
    """Check which limits a container cannot exceed: an engine may accept a limit and ignore it."""
    every = get_args(Limit)
    try:
        repository = _for_containers(engine)
        proven = probe_limits(engine, str(repository.common_dir), runtime=runtime)
    except OrchestratorError as error:
        detail = f"not tested: {error.message}"
        yield Check(name="limits", state="unknown", detail=detail, limits=every, enforced="unknown")
        return
    yield from _enforcements(proven.enforced, config, {})
    if proven.reports_memory is False:
        detail = "the engine does not report that a container ran out of memory"
        yield Check(name="limits", state="warn", detail=detail)
    own = boot_id()
    where = "shared with" if proven.boot == own else "not that of"
    if proven.boot and own:
        yield Check(name="kernel", detail=f"{proven.kernel}, {where} this machine")


def _enforcements(
    enforced: Mapping[Limit, Enforcement],
    config: ParallelConfig,
    words: Mapping[str, tuple[State, str]],
) -> Iterator[Check]:
    missing = [limit for limit in get_args(Limit) if enforced.get(limit) == "no"]
    refused = [limit for limit in missing if limit not in config.isolation.allow_unenforced]
    groups: dict[tuple[Enforcement | Literal["unknown"], bool], list[Limit]] = {}
    for limit in get_args(Limit):
        groups.setdefault((enforced.get(limit, "unknown"), limit in refused), []).append(limit)
    for (how, fails), limits in groups.items():
        state, said = {**_HOW, **words}[how]
        hint = unenforced_hint(refused, missing, in_cluster=bool(words)) if fails else None
        yield Check(
            name="limits",
            state="fail" if fails else state,
            detail=f"{', '.join(limits)}: {said}",
            hint=hint,
            exit_code=UnsupportedError.exit_code if fails else 0,
            limits=tuple(limits),
            enforced=how,
        )


def _images(config: ParallelConfig) -> dict[str, bool]:
    """Return the images that a run may use, each with whether the run certainly needs it."""
    chosen = {"image", "agent_cli"} & config.model_fields_set
    try:
        agent, image = choose_agent(config, None)
        config = with_needed_broker(config, agent, user_variables(config, agent, os.environ))
    except OrchestratorError:
        image = BASE_IMAGE
    needed = {BASE_IMAGE: True}
    if config.isolation.keys == "broker":
        needed[BROKER_IMAGE] = True
    return needed | ({} if image == BASE_IMAGE else {image: bool(chosen)})


def _worktrees(engine: Engine, features: EngineFeatures, config: ParallelConfig) -> Check:
    """Check that workers can get their files as in a run: mounted, or as copies."""
    name, isolation = "worktrees", config.isolation
    try:
        repository = _for_containers(engine)
        way = tested_way(engine, features, repository, isolation)
    except OrchestratorError as error:
        return Check(name=name, state="warn", detail=error.message)
    except OSError as error:
        return Check(name=name, state="warn", detail=one_line(str(error)))
    if way is not None:
        runtime = f", runtime `{isolation.runtime}`" if isolation.runtime else ""
        return Check(name=name, detail=f"{_WAYS[way]}{runtime} (tested)")
    said, hint = "a container cannot write to files of this machine", "use `--transfer auto`"
    if isolation.transfer != "mounts":
        said, hint = f"{said}, and gets no copies of them", "use another engine"
    code = UnsupportedError.exit_code
    return Check(name=name, state="fail", detail=said, hint=hint, exit_code=code)


def _open_network(engine: Engine, features: EngineFeatures, runtime: str | None) -> Check:
    """Check which containers filter the connections of workers on an open network."""
    name = "open network"
    if not features.open_network:
        detail = "not supported by this engine, which is rootless"
        return Check(name=name, state="warn", detail=detail, hint="use the network `none`")
    try:
        check_runtime(runtime)
        repository = _for_containers(engine)
        problem = open_network_problem(engine, str(repository.common_dir))
    except OrchestratorError as error:
        return Check(name=name, state="warn", detail=error.message)
    if problem is None:
        return Check(name=name, detail="filtered by one container per run (tested)")
    return Check(name=name, detail=f"filtered by one container per worker ({problem})")


def _allow_lists(engine: Engine, features: EngineFeatures, runtime: str | None) -> Check:
    """Check that a worker can be confined to the hosts of an allow-list."""
    name, problem = "allow-lists", None
    try:
        check_runtime(runtime)
        problem = "not supported by this engine"
        if features.gateways:
            problem = gateway_problem(engine, str(_for_containers(engine).common_dir))
    except OrchestratorError as error:
        problem = error.message
    if problem is None:
        return Check(name=name, detail="each worker can have a gateway (tested)")
    others = " and `--network open` need" if features.open_network else " needs"
    hint = f"`--network none`{others} no gateway"
    return Check(name=name, state="warn", detail=problem, hint=hint)


def check_image(engine: Engine, image: str, *, required: bool) -> Check:
    """Check that the engine has an image."""
    try:
        info = engine.image_info(image)
    except OrchestratorError as error:
        return check_of_error("image", error)
    if info is not None:
        size = amount(info.size)
        return Check(name="image", detail=f"{image}, {size}")
    agent = "" if required else " (required by `--agent-cli architect`)"
    return Check(
        name="image",
        state="fail" if required else "warn",
        detail=f"{image} is missing{agent}",
        hint=image_hint(image),
        exit_code=3 if required else 0,
    )


def _room(features: EngineFeatures, config: ParallelConfig) -> Check:
    memory = amount(features.memory)
    machine = f"{features.cpus} CPUs, {memory} RAM"
    crowded = crowding(config, features)
    if crowded is None:
        fit = room(config, cpus=features.cpus, memory=features.memory)
        return Check(name="machine", detail=f"{machine}: room for `--workers {fit}`")
    return Check(name="machine", state="warn", detail=crowded)
