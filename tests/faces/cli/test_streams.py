"""Tests of every command with stdout and stderr that are closed, full, a terminal, unread or slow.

A command does its work and exits with its code whatever happens to its output: see "Output that
cannot be printed" in docs/reference/exit-codes.md.
"""

import fcntl
import os
import pty
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from orchestrator.faces.cli.app import app
from orchestrator.faces.cli.output.streams import BROKEN_PIPE, OUTPUT_LOST
from tests.support import local_program
from tests.support.forks import Fork
from tests.support.repository import git, make_repository

SHELL = ("--agent-cli", "shell", "--network", "none")
WORKFLOW = "tasks:\n  - name: one\n    task: 'true'\n    agent_cli: shell\n    network: none\n"


@dataclass(frozen=True)
class Command:
    """A command that is tried with every kind of output."""

    words: tuple[str, ...]
    code: int = 0
    """Exit code if the output can be printed."""
    ends_with_reader: bool = False
    """Whether the command ends when nobody reads its stdout any more."""
    done: Callable[[Path], bool] = lambda _: True
    """Whether a repository shows that the command did its work."""
    has_engine: bool = True
    """Whether there is a container engine; the local one has no images to list."""


def _merged(repo: Path) -> bool:
    return (repo / "new").exists()


def _ran(repo: Path) -> bool:
    return len([*(repo / ".git" / "orchestrator" / "runs").glob("*/result.json")]) > 1


COMMANDS: Mapping[str, Command] = {
    "parallel": Command(
        ("parallel", *SHELL, "--workers", "1", "--land", "merge", "--report", "out/r.json",
         "--", "echo x > landed"),
        done=lambda repo: (repo / "landed").exists() and (repo / "out" / "r.json").exists(),
    ),
    "spec run": Command(("spec", "run", "flow.yaml", "--report", "out/r.json"),
                        done=lambda repo: (repo / "out" / "r.json").exists()),
    "spec graph": Command(("spec", "graph", "flow.yaml")),
    "spec validate": Command(("spec", "validate", "flow.yaml")),
    "spec schema": Command(("spec", "schema")),
    "run": Command(("run", "flow.yaml"), done=_ran),
    "run-one": Command(("run-one", *SHELL, "exit 3"), 1, done=_ran),
    "sandbox run": Command(("sandbox", "run", "--", "echo", "x"), ends_with_reader=True),
    "sandbox batch": Command(("sandbox", "batch", "batch.ndjson", "--results", "out/r"),
                             done=lambda repo: (repo / "out" / "r").stat().st_size > 0),
    "sandbox create": Command(("sandbox", "create"), 7, has_engine=False),
    "sandbox exec": Command(("sandbox", "exec", "0" * 12, "--", "true"), 3),
    "sandbox cp": Command(("sandbox", "cp", "flow.yaml", "0" * 12 + ":x"), 3),
    "sandbox ls": Command(("sandbox", "ls", "--json")),
    "sandbox pause": Command(("sandbox", "pause", "0" * 12), 3),
    "sandbox resume": Command(("sandbox", "resume", "0" * 12), 3),
    "sandbox snapshot": Command(("sandbox", "snapshot", "0" * 12), 3),
    "sandbox extend": Command(("sandbox", "extend", "0" * 12, "60"), 3),
    "sandbox rm": Command(("sandbox", "rm", "0" * 12), 3),
    "ls": Command(("ls",)),
    "watch": Command(("watch",)),
    "report": Command(("report", "--report", "junit", "--report", "out/r.json"),
                      done=lambda repo: (repo / "out" / "r.json").exists()),
    "ui": Command(("ui", "--export", "pages"),
                  done=lambda repo: (repo / "pages" / "index.html").exists()),
    "mcp": Command(("mcp",)),
    "wait": Command(("wait", "--json")),
    "logs": Command(("logs",), ends_with_reader=True),
    "events": Command(("events",), ends_with_reader=True),
    "network log": Command(("network", "log", "--json")),
    "network sets": Command(("network", "sets")),
    "resume": Command(("resume",)),
    "continue": Command(("continue", "1", "-m", "true")),
    "retry": Command(("retry", "1"), done=_ran),
    "stop": Command(("stop", "1"), 3),
    "exec": Command(("exec", "1", "--", "true"), 3),
    "shell": Command(("shell", "1"), 3),
    "diff": Command(("diff",), ends_with_reader=True),
    "conflicts": Command(("conflicts",)),
    "merge": Command(("merge", "1", "--json", "--report", "out/r.xml"),
                     done=lambda repo: _merged(repo) and (repo / "out" / "r.xml").exists()),
    "pr": Command(("pr", "1"), 3),
    "eval": Command(("eval", *SHELL, "-n", "2", "--check", "true", "echo x > landed"), 2,
                    done=_ran),
    "judge": Command(("judge", "--check", "true"), 2),
    "compare": Command(("compare",), 3),
    "pick": Command(("pick", "1"), 3),
    "parallel-cleanup": Command(
        ("parallel-cleanup",), done=lambda repo: not (repo / ".architect-parallel-1").exists()
    ),
    "gc": Command(("gc",)),
    "restore": Command(("restore",), 3),
    "image build": Command(("image", "build", "--agent", "nope"), 3),
    "image ls": Command(("image", "ls"), 7, has_engine=False),
    "image save": Command(("image", "save", "images.tar"), 7, has_engine=False),
    "image load": Command(("image", "load", "nope.tar"), 7, has_engine=False),
    "image push": Command(("image", "push", "reg.example"), 7, has_engine=False),
    "image sbom": Command(("image", "sbom", "nope"), 7, has_engine=False),
    "kubernetes manifest": Command(("kubernetes", "manifest")),
    "cache warm": Command(("cache", "warm"), 3),
    "cache ls": Command(("cache", "ls", "--json")),
    "cache clear": Command(("cache", "clear")),
    "init": Command(("init",), done=lambda repo: (repo / "orchestrator.yaml").exists()),
    "config show": Command(("config", "show")),
    "config validate": Command(("config", "validate", "valid.yaml")),
    "config allow": Command(("config", "allow"), 3),
    "config schema": Command(("config", "schema")),
    "setup": Command(("setup", "--check"), 7, has_engine=False),
    "uninstall": Command(("uninstall", "--dry-run"), 7, has_engine=False),
    "doctor": Command(("doctor",), 7, has_engine=False),
    "completion": Command(("completion", "bash")),
}  # fmt: skip


KINDS = ("parallel", "spec graph", "ls", "report", "ui", "mcp", "logs", "diff", "merge", "gc",
         "init", "completion")  # fmt: skip
"""Commands that `make test` tries: one of each way to print."""


@contextmanager
def _full() -> Iterator[int]:
    descriptor = os.open("/dev/full", os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@contextmanager
def _file(place: Path) -> Iterator[int]:
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    yield descriptor
    os.close(descriptor)


@contextmanager
def _unread() -> Iterator[int]:
    """A pipe whose reader has ended, as in `orchestrator ls | true`."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@contextmanager
def _read(how: str) -> Iterator[int]:
    """A pipe or terminal with a reader: `head` ends after a byte, `slow` begins late."""
    reader, writer = pty.openpty() if how == "terminal" else os.pipe()

    def read() -> None:
        time.sleep(0.5 if how == "slow" else 0)
        with suppress(OSError):  # a terminal that no process has open
            while os.read(reader, 1 if how == "head" else 65536) and how != "head":
                pass
        os.close(reader)

    thread = threading.Thread(target=read)
    thread.start()
    yield writer
    os.close(writer)
    thread.join()


HOW: Mapping[str, Callable[[], "contextmanager[int]"]] = {  # type: ignore[type-arg]
    "full": _full,
    "unread": _unread,
    "closed": lambda: _file(Path(os.devnull)),
    **{how: lambda how=how: _read(how) for how in ("head", "slow", "terminal")},  # type: ignore[misc]
}


class Place:
    """A repository with an ended run, which is as new before each command."""

    def __init__(self, folder: Path) -> None:
        self.repo, self._saved = folder / "repo", folder / "saved"
        self._folder = folder
        make_repository(self.repo)
        (self.repo / "flow.yaml").write_text(WORKFLOW)
        (self.repo / "batch.ndjson").write_text('{"id": "a", "command": ["echo", "x"]}\n')
        (self.repo / "valid.yaml").write_text("parallel_runs:\n  max_workers: 4\n")
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-qm", "files")
        self._serial = 0
        code, _, err = self.call(
            ("parallel", *SHELL, "--workers", "1", "--", "echo x > new; seq 9")
        )
        assert code == 0, err
        self._copy(self.repo, self._saved)

    def renew(self) -> None:
        subprocess.run(["rm", "-rf", str(self.repo)], check=True)
        self._copy(self._saved, self.repo)

    def _copy(self, source: Path, target: Path) -> None:
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)

    def call(
        self,
        words: tuple[str, ...],
        *,
        how: str | None = None,
        stream: str = "stdout",
        has_engine: bool = True,
    ) -> tuple[int, str, str]:
        """Run a command, and return its exit code and what it printed to files."""
        out, err = self._folder / "out", self._folder / "err"
        self._serial += 1
        env = {**os.environ}
        if has_engine:
            env[local_program.FOLDER] = str(self._folder / f"engine-{self._serial}")
        if how == "closed":
            env[local_program.CLOSED] = "1" if stream == "stdout" else "2"
        with _file(out) as to_out, _file(err) as to_err, HOW[how or "closed"]() as special:
            given = {"stdout": to_out, "stderr": to_err, **({stream: special} if how else {})}
            process = Fork("tests.support.local_program", words, cwd=self.repo, env=env, **given)
            code = process.wait(60)
        return code, out.read_text(errors="replace"), err.read_text(errors="replace")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield Place(tmp_path_factory.mktemp("streams"))


def _leaves(command: object, context: object, words: tuple[str, ...] = ()) -> Iterator[str]:
    names = command.list_commands(context) if hasattr(command, "list_commands") else ()
    for name in names:
        inner = command.get_command(context, name)  # type: ignore[attr-defined]
        yield from _leaves(inner, context, (*words, name))
    if not names:
        yield " ".join(words)


def test_every_command_is_tried() -> None:
    group = typer.main.get_command(app)
    assert [*_leaves(group, group.make_context("orchestrator", ["ls"]))] == [*COMMANDS]


@pytest.mark.variants(
    "parallel-std???-unread", "logs-stdout-unread", "diff-stdout-unread",
    *(f"{name}-stdout-full" for name in KINDS),
)  # fmt: skip
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("name", COMMANDS)
def test_command_does_its_work_whatever_its_output_does(
    place: Place, name: str, stream: str, how: str
) -> None:
    command = COMMANDS[name]
    place.renew()
    code, out, err = place.call(
        command.words, how=how, stream=stream, has_engine=command.has_engine
    )
    said = out + err
    assert "Traceback" not in said
    assert "internal error" not in said
    assert command.done(place.repo), said
    is_lost = stream == "stdout" and how == "full" and "output could not be written" in err
    if stream == "stdout" and how in ("unread", "head") and command.ends_with_reader:
        assert code in ((BROKEN_PIPE,) if how == "unread" else (0, BROKEN_PIPE))
    elif is_lost and command.code == 0:
        assert code == OUTPUT_LOST, said
    else:
        assert code == command.code, said
        assert command.code or how != "full" or stream == "stderr" or name in SILENT, "said nothing"


SILENT = ("mcp", "gc", "cache clear")
"""Commands that print nothing on stdout here."""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_run_is_merged_and_reported_while_nobody_reads(place: Place, stream: str) -> None:
    place.renew()
    command = COMMANDS["parallel"]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    env = {**os.environ, local_program.FOLDER: str(place.repo.parent / f"engine-{stream}")}
    with _file(Path(os.devnull)) as null:
        given = {"stdout": null, "stderr": null, stream: writer}
        process = Fork(
            "tests.support.local_program", command.words,
            cwd=place.repo, env=env, **given,
        )  # fmt: skip
    os.close(writer)
    until = time.monotonic() + 60
    while not command.done(place.repo) and time.monotonic() < until:
        time.sleep(0.05)
    assert command.done(place.repo), "the command waits for its reader"
    assert process.poll() is None, "the output was not written"
    while select.select([reader], [], [], 60)[0] and os.read(reader, 65536):
        pass
    os.close(reader)
    assert process.wait(60) == 0


def test_follower_of_a_silent_run_ends_with_its_reader(place: Place) -> None:
    place.renew()
    (run,) = (place.repo / ".git" / "orchestrator" / "runs").glob("*/")
    for words in (("logs", "-f"), ("events", "-f")):
        with (run / "lease").open("r+") as lease:
            fcntl.flock(lease, fcntl.LOCK_EX)  # as the process of a live run does
            reader, writer = os.pipe()
            env = {**os.environ, local_program.FOLDER: str(place.repo.parent / "engine")}
            process = Fork(
                "tests.support.local_program", words, cwd=place.repo, env=env,
                stdout=writer, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            os.close(writer)
            assert os.read(reader, 1)
            os.close(reader)
            assert process.wait(30) == BROKEN_PIPE
