"""Test in a container which limits an engine enforces: what an engine accepts it may ignore."""

import json
import secrets
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import get_args

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.base.errors import EngineError
from orchestrator.base.text.split_lines import split_lines
from orchestrator.config.settings.values import Limit
from orchestrator.engine.egress import has_own_kernel
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.features import WATCHED, Enforcement
from orchestrator.engine.interface.labels import for_a_moment
from orchestrator.engine.interface.protocol import Container, ContainerEngine, ExitStatus
from orchestrator.engine.interface.spec import ContainerSpec, TmpfsMount

_TIMEOUT = 60.0
_LONGEST = 16 * 1024
"""Maximum length of an answer in bytes."""
_CPUS, _OPEN_FILES = 1.0, 64
_MEMORY, _PIDS = 64 * 1024**2, 16
_OWN_MEMORY, _OWN_PIDS = 256 * 1024**2, 96
"""Limits for a runtime with a kernel of its own, whose memory and threads count as well: gVisor
needs about 50 MiB and 30 threads before it starts a command, and two threads for each process.
"""
_TMP = TmpfsMount(target="/tmp", size=2 * 1024**2, inodes=32)  # noqa: S108 - the container's own
_USER = "20000:20000"


class ProvenLimits(BaseModel):
    """What a container showed of the engine that started it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enforced: dict[Limit, Enforcement]
    """How each limit is enforced; a limit that the container could not test is missing."""
    reports_memory: bool | None = None
    """Whether the engine reports that the kernel killed a process for memory; None if unknown."""
    kernel: str = Field(default="", max_length=200)
    """Release of the kernel under which the container ran."""
    boot: str = Field(default="", max_length=100)
    """Identifier of that kernel's start, which is the same in every container of the machine."""

    @property
    def is_sound(self) -> bool:
        """Return whether every limit was tested, and is enforced."""
        return set(self.enforced) == set(get_args(Limit)) and "no" not in self.enforced.values()


class _Answer(BaseModel):
    """The answer of the program in the container. Strict: `1` is not `true`."""

    # protection: answers-about-limits-are-checked
    model_config = ConfigDict(strict=True, extra="forbid")

    kernel: str = Field(default="", max_length=200)
    boot: str = Field(default="", max_length=100)
    memory: bool | None = None
    swap: bool | None = None
    cpus: bool | None = None
    pids: bool | None = None
    open_files: bool | None = None
    tmp: bool | None = None
    tmp_inodes: bool | None = None
    read_only_root: bool | None = None
    no_new_privileges: bool | None = None
    capabilities: bool | None = None
    seccomp: bool | None = None
    network: bool | None = None


def program() -> str:
    """Return the source of the program that runs in the container."""
    return files(__package__).joinpath("limits_in_container.py").read_text(encoding="utf-8")


def probe_limits(
    engine: ContainerEngine, repository: str, *, runtime: str | None = None
) -> ProvenLimits:
    """Start a container with small limits, and return which of them it could not exceed.

    Args:
        engine: The engine, which has the base image.
        repository: The repository's git common directory, for the labels.
        runtime: The OCI runtime of the container. Default: the engine's own.

    Raises:
        EngineError: The container could not be started, or its answer is no answer.
    """
    limits = {
        "memory": _MEMORY, "cpus": _CPUS, "pids": _PIDS, "open_files": _OPEN_FILES,
        "tmp": _TMP.size, "tmp_inodes": _TMP.inodes,
    }  # fmt: skip
    if has_own_kernel(runtime):
        limits |= {"memory": _OWN_MEMORY, "pids": _OWN_PIDS}
    answer, status = _ask(engine, repository, runtime, limits, limits)
    if answer.pids is None and status.counters.refused_processes:
        # The machine's kernel refused a thread to the program that is the container's kernel.
        # protection: limit-at-which-container-ends-is-enforced
        answer.pids = True
        memory, status = _ask(engine, repository, runtime, limits, ("memory",))
        answer.memory = memory.memory
    if not answer.memory and status.oom_killed:
        # The kernel ended the whole container, with the program that would have told.
        answer.memory = True
    seen: dict[Limit, bool | None] = {
        limit: getattr(answer, limit) for limit in get_args(Limit) if limit not in WATCHED
    }
    enforced: dict[Limit, Enforcement] = {
        limit: "kernel" if is_enforced else "no"
        for limit, is_enforced in seen.items()
        if is_enforced is not None
    }
    return ProvenLimits(
        enforced={**enforced, **WATCHED},
        reports_memory=status.oom_killed if answer.memory else None,
        kernel=answer.kernel,
        boot=answer.boot,
    )


def _ask(
    engine: ContainerEngine,
    repository: str,
    runtime: str | None,
    limits: Mapping[str, float],
    tested: Iterable[str],
) -> tuple[_Answer, ExitStatus]:
    """Return what a container with limits answers about some of them, and how it ended."""
    container = engine.start(_spec(repository, runtime, limits, tested))
    try:
        status = container.wait(_TIMEOUT)
        return _read(container, may_be_empty=status.oom_killed), status
    except TimeoutError as error:
        raise EngineError(
            f"cannot test the limits of containers: no answer within {_TIMEOUT:g} s",
            key="limits-probe.timeout",
        ) from error
    finally:
        container.remove()


def _read(container: Container, *, may_be_empty: bool) -> _Answer:
    """Return the two lines of the program's output as one answer.

    Raises:
        EngineError: The output has another form.
    """
    output = bytearray()
    # The container has ended, so its output does too.
    for chunk in container.logs():
        if chunk.stream == "stdout":
            output += chunk.data[: _LONGEST + 1 - len(output)]
    told: dict[str, object] = {}
    try:
        # protection: answers-about-limits-are-short
        if len(output) > _LONGEST:
            raise ValueError("too long")
        for line in split_lines(bytes(output).decode()):
            told |= json.loads(line)
        # protection: no-answer-about-limits-is-error
        if not told and not may_be_empty:
            raise ValueError("no answer")
        return _Answer.model_validate(told)
    except (ValueError, TypeError, RecursionError) as error:
        raise EngineError(
            "cannot test the limits of containers: the container did not answer as expected",
            key="limits-probe.failed",
            hint="build the base image again with `orchestrator image build`",
        ) from error


def _spec(
    repository: str, runtime: str | None, limits: Mapping[str, float], tested: Iterable[str]
) -> ContainerSpec:
    run = f"limits-{secrets.token_hex(4)}"
    asked = (f"{name}={limits[name]}" for name in tested)
    return ContainerSpec(
        name=f"orchestrator-{run}-probe",
        image=BASE_IMAGE,
        command=("python3", "-I", "-S", "-c", program(), *asked),
        user=_USER,
        workdir="/",
        labels=for_a_moment(repository, run=run),
        mounts=(_TMP,),
        cpus=_CPUS,
        memory=int(limits["memory"]),
        pids=int(limits["pids"]),
        open_files=_OPEN_FILES,
        runtime=runtime,
    )
