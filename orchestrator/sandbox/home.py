"""Directories of this machine's sandboxes, and the time at which each sandbox must be gone.

The directory of a sandbox exists before its container, and is removed after it. A small process
(see `reaper`) ends the sandboxes whose time is over or whose owner is gone. Whoever creates a
directory makes sure that this process runs.
"""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.atomic import write_private
from orchestrator.base.files.lock_file import take_lock
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.files.user_state import state_home
from orchestrator.base.machine import boot_id, process_mark, uptime
from orchestrator.engine.interface.labels import MANAGED, ROLE, SANDBOX
from orchestrator.sandbox.deadlines import reaper
from orchestrator.sandbox.deadlines.dead_man_switch import environment

_READY = "ready"
_OWN_USERS = 30_000
"""First user id of sandboxes that root creates: no user of an ordinary system, and one below
65,536, so that it exists in a user namespace.
"""


def sandboxes() -> Path:
    """Return the directory with a directory for each sandbox of this user."""
    return state_home() / "sandboxes"


@dataclass(frozen=True)
class Home:
    """The directory of one sandbox."""

    path: Path

    @classmethod
    def create(cls, *, engine: str, seconds: float, owned: bool, about: str = "") -> "Home":
        """Create the directory of a new sandbox.

        Args:
            engine: Name of the engine's entry point. Other processes reach it as this one does.
            seconds: Time until the sandbox must be gone.
            owned: Whether the sandbox ends with this process.
            about: Text about the sandbox, for other processes.

        Raises:
            ConfigError: The directory for the state of this user cannot be written to.
        """
        parent = sandboxes()
        home = cls(parent / secrets.token_hex(6))
        try:
            parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            home.path.mkdir(mode=0o711)
            home._write({
                "boot": boot_id() or "", "ends": str(uptime() + seconds), "network": "",
                "owner": process_mark() if owned else "",
                "engine": engine, "about": about,
            })  # fmt: skip
            # protection: reaper-runs-before-sandbox
            _ensure_reaper(parent)
            home.control.mkdir(mode=0o755)
            home.workspace.mkdir(mode=0o755)
            if home.user != os.getuid():
                os.chown(home.workspace, home.user, home.group)
        except OSError as error:
            raise ConfigError(
                f"the state of sandboxes cannot be written to {parent}: {error.strerror}",
                key="sandbox.no-state",
                hint="set `XDG_STATE_HOME` to a directory that you can write to",
            ) from error
        return home

    @property
    def id(self) -> str:
        """Return the sandbox's id, of 12 hexadecimal digits."""
        return self.path.name

    @property
    def workspace(self) -> Path:
        """Return the directory that commands see as `/workspace`. Its contents are hostile."""
        return self.path / "workspace"

    @property
    def control(self) -> Path:
        """Return the directory with files that commands can only read."""
        return self.path / "control"

    @property
    def ports(self) -> Path:
        """Return the directory with the socket files of exposed ports, which may not exist."""
        return self.path / "ports"

    @cached_property
    def user(self) -> int:
        """Return the user of the sandbox's commands: the caller's own, never root's."""
        # protection: sandbox-is-never-root
        if os.getuid() != 0:
            return os.getuid()
        return _OWN_USERS + int(self.id, 16) % _OWN_USERS

    @property
    def group(self) -> int:
        """Return the group of the sandbox's commands."""
        return self.user if os.getuid() == 0 else os.getgid()

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels by which the sandbox's container is found."""
        return {**self.all_labels, ROLE: "sandbox"}

    @property
    def all_labels(self) -> dict[str, str]:
        """Return the labels of all objects of the sandbox, also those of its network."""
        return {MANAGED: "true", SANDBOX: self.id}

    @property
    def about(self) -> str:
        """Return the text about the sandbox."""
        return str(self._lease()["about"])

    @property
    def left(self) -> float:
        """Return the seconds until the sandbox ends; negative after its end."""
        lease = self._lease()
        return float(lease["ends"]) - uptime() if lease["boot"] == (boot_id() or "") else -1.0

    @property
    def is_gone(self) -> bool:
        """Return whether the sandbox has ended, and was removed."""
        return not self.path.exists()

    @property
    def network(self) -> str:
        """Return the id of the shared network that the sandbox uses; empty if it has none."""
        return self._lease().get("network", "")

    def use_network(self, id: str) -> None:
        """Note which shared network the sandbox uses, so that this network stays; empty: none."""
        self._write({**self._lease(), "network": id})

    @property
    def is_ready(self) -> bool:
        """Return whether the sandbox's container has started."""
        return (self.path / _READY).exists()

    def note_ready(self) -> None:
        """Note that the sandbox's container has started."""
        (self.path / _READY).touch()

    def extend(self, seconds: float) -> None:
        """Set the time until the sandbox ends, from now on; it then has no owner."""
        ends = str(uptime() + seconds)
        self._write({**self._lease(), "boot": boot_id() or "", "ends": ends, "owner": ""})

    def remove(self) -> None:
        """Remove the directory; its container must be gone."""
        remove_tree(self.path)

    def write_control(self, name: str, content: bytes) -> None:
        """Write a file that commands can read and not change."""
        write_private(self.control / name, content, mode=0o644)

    def _lease(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.path / reaper.LEASE).read_text())
        return found

    def _write(self, lease: Mapping[str, str]) -> None:
        write_private(self.path / reaper.LEASE, json.dumps(lease).encode())


def _ensure_reaper(parent: Path) -> None:
    """Start the process that ends sandboxes, unless it runs."""
    lock = take_lock(parent / reaper.LOCK)
    if lock is None:
        return
    with lock, (parent / reaper.LOG).open("ab") as log:
        # protection: reaper-gets-no-secrets
        subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__, str(parent), str(lock.fileno())],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
            pass_fds=[lock.fileno()], start_new_session=True,
            env=environment(os.environ),
        ).wait()  # fmt: skip


def known() -> list[Home]:
    """Return the directories of this user's sandboxes."""
    with suppress(OSError):
        return [Home(path) for path in sorted(sandboxes().iterdir()) if path.is_dir()]
    return []
