"""`orchestrator doctor`: could a run start here, and if not, what is missing."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import humanize
import typer

from orchestrator import git
from orchestrator.cli.messages import show
from orchestrator.config import BASE_IMAGE, DEFAULT_IMAGE, Limits
from orchestrator.engine import load_engine
from orchestrator.engine.base import Engine, EngineFeatures
from orchestrator.errors import OrchestratorError
from orchestrator.repository import Repository

CPUS_PER_WORKER = 2
MAX_WORKERS = 10
LOW_DISK = 2 * 1024**3
_MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "warn", "fail"] = "ok"
    detail: str
    hint: str | None = None
    exit_code: int = 0
    """What the command ends with because of it."""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Check that a run could start on this machine."""
    checks = list(_checks())
    show(_as_json(checks) if as_json else "\n".join(map(_line, checks)))
    raise typer.Exit(max(check.exit_code for check in checks))


def _checks() -> Iterator[Check]:
    yield _git()
    yield from _repository()
    try:
        engine = load_engine("docker")
    except OrchestratorError as error:
        yield _failed("engine", error)
        return
    try:
        yield from _engine(engine)
    finally:
        engine.close()


def _failed(name: str, error: OrchestratorError) -> Check:
    return Check(
        name=name, state="fail", detail=error.message, hint=error.hint, exit_code=error.exit_code
    )


def _git() -> Check:
    try:
        found = git.version()
    except OrchestratorError as error:
        return _failed("git", error)
    version = ".".join(map(str, found))
    if found >= git.MINIMUM_VERSION:
        return Check(name="git", detail=version)
    minimum = ".".join(map(str, git.MINIMUM_VERSION))
    return Check(
        name="git",
        state="fail",
        detail=f"{version} is too old",
        hint=f"install git {minimum} or newer",
        exit_code=3,
    )


def _repository() -> Iterator[Check]:
    try:
        repository = Repository(Path.cwd())
        head = repository.resolve("HEAD")
    except OrchestratorError as error:
        yield _failed("repository", error)
        return
    shallow = ", shallow" if repository.shallow_commits() else ""
    yield Check(name="repository", detail=f"{repository.top}, HEAD {head[:12]}{shallow}")
    yield _disk(repository.top)


def _disk(top: Path) -> Check:
    free = shutil.disk_usage(top).free
    detail = f"{humanize.naturalsize(free, binary=True)} free"
    if free >= LOW_DISK:
        return Check(name="disk", detail=detail)
    return Check(name="disk", state="warn", detail=detail, hint="a few workers may fill it")


def _engine(engine: Engine) -> Iterator[Check]:
    try:
        features = engine.check(images=(), runtime=None)
    except OrchestratorError as error:
        yield _failed("engine", error)
        return
    yield Check(name="engine", detail=features.version)
    yield Check(name="runtimes", detail=", ".join(features.runtimes) or "the engine's own")
    yield _worktrees(features)
    yield _image(engine, BASE_IMAGE, required=True)
    yield _image(engine, DEFAULT_IMAGE, required=False)
    yield _machine(features)


def _worktrees(features: EngineFeatures) -> Check:
    if features.overlay:
        return Check(name="worktrees", detail="overlay")
    return Check(name="worktrees", detail="bind mounts: every worker is checked out in full")


def _image(engine: Engine, image: str, *, required: bool) -> Check:
    try:
        info = engine.image_info(image)
    except OrchestratorError as error:
        return _failed("image", error)
    if info is not None:
        size = humanize.naturalsize(info.size, binary=True)
        return Check(name="image", detail=f"{image}, {size}")
    agent = "" if required else " (needed by `--agent-cli architect`)"
    return Check(
        name="image",
        state="fail" if required else "warn",
        detail=f"{image} is missing{agent}",
        hint="build it with `orchestrator image build`",
        exit_code=3 if required else 0,
    )


def suggested_workers(*, cpus: int, memory: int) -> int:
    """Say how many workers a machine has room for at the default limits."""
    return max(1, min(MAX_WORKERS, cpus // CPUS_PER_WORKER, memory // Limits().memory))


def _machine(features: EngineFeatures) -> Check:
    workers = suggested_workers(cpus=features.cpus, memory=features.memory)
    memory = humanize.naturalsize(features.memory, binary=True)
    return Check(
        name="machine",
        detail=f"{features.cpus} CPUs, {memory} RAM: room for `--workers {workers}`",
    )


def _line(check: Check) -> str:
    hint = f"\n    hint: {check.hint}" if check.hint else ""
    return f"{_MARKS[check.state]} {check.name}: {check.detail}{hint}"


def _as_json(checks: list[Check]) -> str:
    ok = not any(check.exit_code for check in checks)
    return json.dumps({"ok": ok, "checks": [asdict(check) for check in checks]}, indent=2)
