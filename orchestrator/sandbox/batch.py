"""Run submissions: each in a sandbox of its own, which exists for this one command."""

import os
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from pathlib import Path

from orchestrator.base.errors import UnsupportedError
from orchestrator.base.files.change_owner import change_owner
from orchestrator.base.files.safe_open import read_below
from orchestrator.engine import connected
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.places.place import Start
from orchestrator.sandbox.home import Home
from orchestrator.sandbox.layout import CONTROL, HOME, STEP, Maker, check, place_of
from orchestrator.sandbox.models import REASONS, EndReason, Finished, Submission, Template
from orchestrator.sandbox.network.shared_network import SharedNetwork
from orchestrator.sandbox.output_buffer import OutputBuffer
from orchestrator.sandbox.supervision.cancel import Cancel
from orchestrator.sandbox.supervision.launch import ContainerLimits, start_again
from orchestrator.sandbox.supervision.supervisor import attend
from orchestrator.state.worker.endings import Ending

_LATE = 10.0
"""Seconds after its timeout at which a sandbox must be gone whoever was to stop its command."""
_WITH_FILES = 'cp -R "$0/." . && exec "$@"'
_WITH_INPUT = 'exec "$@" < "$0"'
_LARGEST_FILE = 64 * 1024**2
_OF_LIMITS: Mapping[str, EndReason] = {
    "memory": EndReason.OOM,
    "pids": EndReason.PIDS,
    "disk": EndReason.DISK,
    "inodes": EndReason.INODES,
}


def run_all(
    submissions: Iterable[Submission],
    *,
    template: Template | None = None,
    at_once: int = 4,
    engine: ContainerEngine | None = None,
    cancel: Cancel | None = None,
) -> Generator[Finished]:
    """Run each submission in a sandbox of its own; yield the results in the order of their ends.

    A submission is only read when there is room for it, so the iterable may be endless. Leaving the
    iterator ends the sandboxes that still run.

    Args:
        submissions: What to run.
        template: How the sandboxes are made. Default: `Template()`.
        at_once: Maximum number of sandboxes at the same time.
        engine: The engine. Default: the user's Docker engine.
        cancel: Request to stop; the submissions that run end with the reason `killed`.

    Raises:
        ImageNotFoundError: The engine lacks the image.
        EngineUnavailableError: The engine cannot be reached.
        ConfigError: The state of sandboxes cannot be written.
    """
    template, cancel = template or Template(), cancel or Cancel()
    waiting, running = iter(submissions), set[Future[Finished]]()
    with connected(engine) as found, ExitStack() as stack:
        maker = check(template, found)
        if maker.egress is not None:
            # The network stays when no sandbox is in it for a moment.
            network = SharedNetwork.of(found, maker.egress)
            network.join(cancel)
            stack.callback(network.leave, cancel)
        pool = ThreadPoolExecutor(at_once, thread_name_prefix="sandbox")
        stack.callback(pool.shutdown)
        # protection: sandboxes-of-left-iterator-end
        stack.callback(cancel.press, kill=True)
        while True:
            while len(running) < at_once and not cancel.stop_asked:
                submission = next(waiting, None)
                if submission is None:
                    break
                running.add(pool.submit(run_one, submission, maker, cancel))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def run_one(
    submission: Submission,
    maker: Maker,
    cancel: Cancel,
    output: OutputBuffer | None = None,
) -> Finished:
    """Run a submission in a sandbox that exists for it alone; return how it ended.

    A command that cannot be started ends as in a shell, with 126 or 127.

    Args:
        submission: What to run.
        maker: What makes the sandbox.
        cancel: Request to stop the command.
        output: Receives the output. Default: a new buffer.

    Raises:
        EngineUnavailableError: The engine cannot be reached.
        EngineError: The container could not be created.
        ConfigError: The state of sandboxes cannot be written.
    """
    template, engine = maker.template, maker.engine
    if submission.out and template.user == "root":
        raise UnsupportedError(
            "submissions to sandboxes of the user root return no files", key="sandbox.root-out"
        )
    limits = template.limits
    seconds = submission.timeout + limits.grace + _LATE
    home = Home.create(engine=engine.name, seconds=seconds, owned=True)
    network: SharedNetwork | None = None
    try:
        if maker.egress is not None:
            network = SharedNetwork.of(engine, maker.egress)
        place, command = place_of(home, maker), submission.command
        if template.user != "root":
            _write(home, home.workspace, submission.files)
        elif submission.files:
            _write(home, home.control / "files", submission.files)
            command = ("sh", "-c", _WITH_FILES, f"{CONTROL}/files", *command)
        if submission.stdin:
            home.write_control("stdin", submission.stdin)
            command = ("sh", "-c", _WITH_INPUT, f"{CONTROL}/stdin", *command)
        terms = ContainerLimits(
            worker_id=0, place=place, step=STEP, timeout=submission.timeout, limits=limits,
            growing=(STEP,),
        )  # fmt: skip
        output = output or OutputBuffer(limits.log_limit)
        env = {"HOME": HOME, **template.env, **submission.env}
        shared = "none" if network is None else network.join(home)
        running = start_again(Start(command=command, env=env, network=shared), terms)
        try:
            ending = attend(running, log=output, cancel=cancel, emit=_ignore)
        finally:
            # protection: container-of-submission-is-removed
            running.container.remove()
        return finished(submission.id, ending, output, _collect(home, submission.out))
    finally:
        home.remove()
        if network is not None:
            network.leave(home)


def _ignore(_: object) -> None:
    """Emit nothing: nobody listens."""


def _write(home: Home, directory: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a submission to a directory, which no command has seen yet."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if content.startswith(b"#!"):
            path.chmod(0o755)
    if files and home.user != os.getuid():
        change_owner(directory, (home.user, home.group))


def _collect(home: Home, names: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of those files that a command left in the workspace as ordinary files."""
    found = {}
    for name in names:
        with suppress(OSError):
            found[name] = read_below(home.workspace, name, most=_LARGEST_FILE)
    return found


def finished(
    name: str, ending: Ending, output: OutputBuffer, files: Mapping[str, bytes]
) -> Finished:
    """Return how a command ended that was the only one of its container."""
    status, reason, message = ending.exit_status, EndReason.EXITED, None
    if ending.error is not None:
        reason, message = EndReason.ENGINE_LOST, ending.error
    elif ending.stopped is not None:
        reason = REASONS.get(ending.stopped.reason, EndReason.KILLED)
        message = ending.stopped.measured
    elif status is not None and status.oom_killed:
        reason, message = EndReason.OOM, "killed at the limit of memory"
    elif status is not None and status.exit_code != 0 and ending.limits_hit:
        found = ending.limits_hit[0]
        reason = _OF_LIMITS.get(found, EndReason.EXITED)
        message = None if reason is EndReason.EXITED else f"reached the limit of {found}"
    return Finished(
        id=name,
        exit_code=None if status is None else status.exit_code,
        reason=reason,
        message=message,
        stdout=output.read("stdout"),
        stderr=output.read("stderr"),
        truncated=output.truncated,
        wall=ending.duration,
        cpu_time=ending.cpu_time,
        peak_memory=ending.peak_memory,
        uncounted=ending.uncounted,
        files=files,
    )
