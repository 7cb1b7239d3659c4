"""A place of plain processes: a porter, and shims that are PID 1 of a process namespace."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from orchestrator.base.files.bundle import bundle

SHIM = files("orchestrator.engine.places.in_place").joinpath("shim.sh").read_text()
USER = 20_001
_PORTER = bundle("orchestrator.engine.places.in_place.porter")
_NO_LIMITS: Mapping[str, Any] = {
    "after": None, "timeout": None, "grace": 5.0, "disk": None, "inodes": None, "limited": [],
    "output": None, "serves": False,
}  # fmt: skip


class PlainPlace:
    """Starts a porter in `root`; `start` starts the shim of a step."""

    def __init__(
        self,
        root: Path,
        steps: Mapping[str, Mapping[str, Any]],
        *,
        start_within: float = 60.0,
        collect_within: float = 60.0,
        usage: Path | None = None,
        shell: str = "/bin/sh",
        user: int = USER,
    ) -> None:
        # As in a container: a step cannot trace a program that it cannot read. `setpriv` could
        # still read it, so another program starts it.
        self._shell = shutil.copyfile(shell, root / "sh")
        self._shell.chmod(0o711)
        self._own, self._channels = root / "porter", root / "channels"
        self.work = root / "work"
        # With measurements by another program, as in a pod, each run of a step has a channel.
        self._run = "" if usage is None else "1"
        channels = (self._channels / name / self._run for name in steps)
        for folder in (self._own, self.work, *channels):
            folder.mkdir(parents=True)
        os.chown(self.work, user, user)
        self._user = str(user)
        spec = {
            "channels": str(self._channels),
            "parts": {"work": str(self.work)},
            "started": [],
            "start_within": start_within,
            "collect_within": collect_within,
            "steps": {name: {**_NO_LIMITS, **given} for name, given in steps.items()},
            **({} if usage is None else {"usage": str(usage)}),
        }
        (self._own / "spec.json").write_text(json.dumps(spec))
        self.porter = self._command("serve", stdout=None)
        self._shims: list[subprocess.Popen[bytes]] = []
        wait_for(lambda: (self._own / "socket").exists())

    def _command(self, *words: str, **rest: Any) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-I", "-S", "-c", _PORTER, str(self._own), *words]
        return subprocess.Popen(command, **{"stdout": subprocess.PIPE, **rest})

    def ask(self, *words: str, data: bytes = b"") -> Any:
        """Run a short command of the porter, and return its answer."""
        process = self._command(*words, stdin=subprocess.PIPE)
        return json.loads(process.communicate(data, timeout=60)[0])

    def start(self, step: str, *limits: int) -> "subprocess.Popen[bytes]":
        """Start the shim of a step, as an unprivileged user in namespaces of its own.

        Args:
            step: The step.
            limits: Largest numbers of processes and of open files.
        """
        user = ("--reuid", self._user, "--regid", self._user, "--clear-groups", "--no-new-privs")
        command = (
            *("unshare", "--pid", "--mount-proc", "--fork", "--kill-child", "setpriv", *user),
            *("env", str(self._shell), "-c", SHIM, "shim", str(self._channels / step / self._run)),
            *(("60", *map(str, limits)) if limits else ()),
        )
        shim = subprocess.Popen(command, cwd="/", env={"PATH": "/usr/bin:/bin"})
        self._shims.append(shim)
        return shim

    def order(self, step: str, *argv: str, nonce: str = "n", **env: str) -> Any:
        """Order a step."""
        order = {"step": step, "nonce": nonce, "argv": argv, "env": env, "workdir": "/"}
        data = json.dumps(order).encode()
        return self.ask("order", str(len(data)), hashlib.sha256(data).hexdigest(), data=data)

    def run(self, step: str, *argv: str, **env: str) -> int:
        """Run a step to its end, and return the exit code of its PID 1."""
        shim = self.start(step)
        assert self.order(step, *argv, **env) == {}
        return shim.wait(60)

    def journal(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.ask("journal", "0")["entries"]
        return entries

    def ended(self, step: str) -> dict[str, Any]:
        """Return the journal's entry of a step's end, when it is there."""
        wait_for(lambda: any(e["event"] == "ended" and e["step"] == step for e in self.journal()))
        return next(e for e in self.journal() if e["event"] == "ended" and e["step"] == step)

    def output(self, name: str, at: int = 0) -> bytes:
        """Return what is in one stream of a step from an offset on, checked."""
        process = self._command("read", "30", name, str(at))
        assert process.stdout is not None
        said = b""
        with process, process.stdout as frames:
            while not (head := json.loads(frames.readline())).get("final", False):
                assert "length" in head, head
                data = frames.read(head["length"])
                assert hashlib.sha256(data).hexdigest() == head["sha256"]
                assert head["at"] == at + len(said)
                said += data
        return said

    def output_so_far(self, name: str, wanted: bytes) -> bool:
        """Wait until one stream of a step has begun with the given bytes."""
        file = self._own / "output" / name
        wait_for(lambda: file.read_bytes().startswith(wanted))
        return True

    def close(self) -> None:
        """End all processes."""
        self.porter.kill()
        self.porter.wait()
        for shim in self._shims:
            shim.kill()
            shim.wait()


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
