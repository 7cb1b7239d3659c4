"""Two ordinary users and root of one machine, who work in one repository.

They use the local engine, or the Docker daemon as members of the group of its socket.

A command runs in a fork of this process that has given up root's rights, so that the user needs no
access to the interpreter's files. All modules are imported before.
"""

import codecs
import encodings
import json
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import orchestrator
from orchestrator.engine import ContainerEngine, ImageInfo
from orchestrator.engine.docker import DockerEngine
from orchestrator.faces.cli.app import run as run_command
from tests.support.live import PATIENCE, eventually
from tests.support.local_engine import LocalEngine
from tests.support.runs import shell_run
from tests.support.temptations import tempt

GROUP = 20_300
"""The group of the users who share a repository."""
UIDS = {"ann": 20_301, "ben": 20_302, "root": 0}
_PYTHON = "/usr/bin/python3"
_WITHOUT = ("orchestrator.network.broker.server", "orchestrator.worker.in_container", "__main__")


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@dataclass
class World:
    """A repository, and the users who work in it."""

    top: Path
    umask: int
    home: Path
    socket_group: int | None = None
    """The group of the Docker daemon's socket; None for the local engine."""
    forks: list[int] = field(default_factory=list)

    @property
    def record(self) -> Path:
        """The names of programs of the configuration that ran."""
        return self.top / "programs" / "record"

    @property
    def repo(self) -> Path:
        return self.top / "repo"

    def run(self, user: str, *words: str, cwd: Path | None = None) -> Said:
        """Run a command of `orchestrator` as a user."""
        place = Path(tempfile.mkdtemp(dir=self.top))
        place.chmod(0o777)

        def act() -> int:
            for number, name in ((1, "out"), (2, "err")):
                made = os.open(place / name, os.O_WRONLY | os.O_CREAT, 0o666)
                os.dup2(made, number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdin = os.fdopen(0)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
            self._use_engine(user)
            code = run_command(list(words))
            sys.stdout.flush()
            return code

        code = self.wait(self.fork(user, act, cwd=cwd))
        out, err = ((place / name).read_text() for name in ("out", "err"))
        shutil.rmtree(place)
        return Said(code, out, err)

    def start(self, user: str, state: str) -> str:
        """Let a user make a run that is `finished`, `live` or `died`, and return its id."""
        before = self.run_ids()
        gate = self.top / f"gate-{user}"
        task = "echo new > new.txt; echo said"
        if state != "finished":
            task += f"; while [ ! -e {gate} ]; do sleep 0.05; done"
        pid = self.fork(user, lambda: self._shell_run(user, task))
        if state == "finished":
            assert self.wait(pid) == 0, "the run of the world failed"
        else:
            eventually(lambda: self._is_running(before), "the start")
        (run_id,) = self.run_ids() - before
        if state == "died":
            os.kill(pid, signal.SIGKILL)
            self.wait(pid)
            gate.touch()
        return run_id

    def name(self, user: str) -> str:
        """Return the name of a user in messages; only root has an entry in the user database."""
        return "root" if user == "root" else f"user {UIDS[user]}"

    def number(self, run: str) -> int:
        """Return the number of the only worker of a run."""
        record = json.loads((self.repo / f".git/orchestrator/owners/{run}.json").read_text())
        return int(record["workers"][0]["worker_id"])

    def scratch(self, user: str) -> Path:
        """Return a directory of a user outside of the repository, with a workflow file."""
        return self.home / user

    def run_ids(self) -> set[str]:
        place = self.repo / ".git/orchestrator/runs"
        return {one.name for one in place.iterdir() if one.is_dir()} if place.exists() else set()

    def _is_running(self, before: set[str]) -> bool:
        return any(
            b'"type": "worker_started"' in events.read_bytes()
            for one in self.run_ids() - before
            if (events := self.repo / f".git/orchestrator/runs/{one}/events.ndjson").exists()
        )

    def _shell_run(self, user: str, task: str) -> int:
        result = shell_run(self.repo, self._engine(user), task, timeout_per_worker=600)
        return 0 if result.status == "success" else 1

    def _engine(self, user: str) -> ContainerEngine:
        has_docker = self.socket_group is not None
        return DockerEngine() if has_docker else _Engine(self.home / user / "engine")

    def _use_engine(self, user: str) -> None:
        if self.socket_group is not None:
            return
        for module in list(sys.modules.values()):
            if hasattr(module, "load_engine"):
                module.load_engine = lambda *_: self._engine(user)  # type: ignore[attr-defined]

    def fork(self, user: str, act: Callable[[], int], *, cwd: Path | None = None) -> int:
        """Call a function in a process of a user, and return the id of the process."""
        child = os.fork()
        if child:
            self.forks.append(child)
            return child
        code = 99
        try:
            os.setsid()
            self._become(user)
            os.chdir(cwd or self.repo)
            code = act()
        except BaseException:  # noqa: BLE001 - a fork must not return to pytest
            traceback.print_exc()
        finally:
            os._exit(code)

    def _become(self, user: str) -> None:
        for name in [*os.environ]:
            if name.startswith(("ORCHESTRATOR_", "SUDO_", "XDG_")):
                del os.environ[name]
        os.environ |= {"HOME": str(self.home / user), "COLUMNS": "200"}
        os.umask(self.umask)
        if UIDS[user]:
            sys.executable = _PYTHON
            os.setgroups([GROUP, *filter(None, [self.socket_group])])
            os.setgid(GROUP)
            os.setuid(UIDS[user])

    def wait(self, pid: int) -> int:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self.forks.remove(pid)
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        raise AssertionError("a command did not end")


class _Engine(LocalEngine):
    """The local engine as the commands use it."""

    def close(self) -> None:
        """Do nothing: a connection has nothing to close."""

    def image_id(self, image: str) -> str | None:
        """Return the name of the image in place of an id."""
        return image

    def image_info(self, image: str) -> ImageInfo | None:
        """Return None: the engine stores no images."""


@contextmanager
def world(layout: str, socket_group: int | None = None) -> Iterator[World]:
    """Make a repository of `ann`: `shared` with a group, `private`, or `closed` to others.

    With the group of its socket, the users have the Docker daemon in place of the local engine.
    """
    _import_everything()
    top = Path(tempfile.mkdtemp(prefix="orchestrator-users-"))
    top.chmod(0o777)
    made = World(top, {"shared": 0o002, "private": 0o022, "closed": 0o077}[layout], top / "home")
    made.socket_group = socket_group
    made.home.mkdir()
    made.record.parent.mkdir()
    made.record.parent.chmod(0o777)
    made.home.chmod(0o755)
    for user, uid in UIDS.items():
        home = made.home / user
        home.mkdir()
        (home / ".gitconfig").write_text(
            f"[user]\n\tname = {user}\n\temail = {user}@example.org\n[safe]\n\tdirectory = *\n"
        )
        (home / "flow.yaml").write_text("tasks: [{id: one, task: 'true'}]\n")
        subprocess.run(["chown", "-R", f"{uid}:{GROUP if uid else 0}", home], check=True)
    try:
        assert made.wait(made.fork("ann", lambda: _init(made, layout), cwd=top)) == 0
        yield made
    finally:
        for gate in UIDS:
            (top / f"gate-{gate}").touch()
        for pid in [*made.forks]:
            with suppress(AssertionError):
                made.wait(pid)
        shutil.rmtree(top)


def _init(made: World, layout: str) -> int:
    repo = made.repo
    shared = ["--shared=group"] if layout == "shared" else []
    commands: list[list[Any]] = [
        ["git", "init", "-q", "-b", "main", *shared, repo],
        ["git", "-C", repo, "commit", "-q", "--allow-empty", "-m", "base"],
    ]
    for command in commands:
        subprocess.run(command, check=True)
    tempt(repo, made.record)
    if layout == "shared":
        repo.chmod(0o2775)
    return 0


def _import_everything() -> None:
    for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if not module.name.endswith("__main__") and not module.name.startswith(_WITHOUT):
            import_module(module.name)
    for module in pkgutil.iter_modules(encodings.__path__):
        with suppress(LookupError):
            codecs.lookup(module.name)
