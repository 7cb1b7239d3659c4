"""Users who run the orchestrator: root, and an ordinary user of the docker group."""

import os
import pwd
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.assurance.attacks import secret

ROOT = Path(__file__).parents[3]
USER = f"attacked-{os.getpid()}"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONFIG = """[user]
	name = Ann
	email = ann@localhost
[init]
	defaultBranch = main
[log]
	showSignature = true
[color]
	ui = always
"""


@dataclass(frozen=True)
class Caller:
    """A user of this machine with a home directory of its own."""

    name: str
    uid: int
    gid: int
    home: Path
    python: str

    @property
    def prefix(self) -> list[str]:
        """The beginning of a command line that runs a command as this user."""
        if self.uid == os.getuid():
            return []
        # `--init-groups` adds the docker group, which may use the daemon's socket.
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--init-groups"]

    @property
    def environment(self) -> dict[str, str]:
        """The user's environment, with the path of the project."""
        packages = f"{ROOT}:{sysconfig.get_path('purelib')}"
        known = {"PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "160"}
        known |= {secret.NAME: secret.VALUE, "ORCHESTRATOR_MAX_WORKTREES": "100"}
        kept = ("DOCKER_HOST", "KUBECONFIG", "ORCHESTRATOR_TRANSFER", "ORCHESTRATOR_ENGINE")
        kept += ("ORCHESTRATOR_ALLOW_UNENFORCED",)
        engine = {key: os.environ[key] for key in kept if key in os.environ}
        return {"PATH": _PATH, "HOME": str(self.home), "LC_ALL": "C.UTF-8", **known, **engine}

    def popen(self, command: Sequence[str], cwd: Path, **more: object) -> subprocess.Popen[bytes]:
        """Start a command as this user."""
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            [*self.prefix, *command], cwd=cwd, env=self.environment, **more
        )

    def run(self, *command: str, cwd: Path, timeout: float = 300) -> str:
        """Run a command as this user, which must succeed, and return its stdout."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.popen(command, cwd, start_new_session=True, **pipes) as process:
            try:
                stdout, stderr = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                # A git that opened a FIFO never ends, and `with` would wait for it.
                os.killpg(process.pid, signal.SIGKILL)
                raise
        assert process.returncode == 0, f"{command}: {stderr.decode(errors='replace')}"
        return stdout.decode(errors="replace").strip()

    def own(self, path: Path) -> None:
        """Make this user the owner of a directory tree."""
        if self.uid != os.getuid():
            subprocess.run(["chown", "-hR", f"{self.uid}:{self.gid}", str(path)], check=True)


@contextmanager
def callers(directory: Path) -> Iterator[dict[str, Caller]]:
    """Yield all users that can be tested; a user that had to be created is removed at the end."""
    directory.chmod(0o711)
    mine = _caller("root" if os.getuid() == 0 else "user", os.getuid(), os.getgid(), directory)
    if os.getuid() != 0:
        yield {mine.name: mine}
        return
    subprocess.run(["useradd", "--no-create-home", "--groups", "docker", USER], check=True)
    try:
        entry = pwd.getpwnam(USER)
        yield {"root": mine, "user": _caller("user", entry.pw_uid, entry.pw_gid, directory)}
    finally:
        subprocess.run(["userdel", USER], check=True)


def _caller(name: str, uid: int, gid: int, directory: Path) -> Caller:
    home = directory / name
    home.mkdir(mode=0o755)
    (home / ".gitconfig").write_text(_CONFIG)
    caller = Caller(name, uid, gid, home, "")
    caller.own(home)
    return Caller(name, uid, gid, home, _interpreter(caller))


def _interpreter(caller: Caller) -> str:
    """Find a Python interpreter that the user may start and that has the installed packages."""
    version = f"python3.{sys.version_info.minor}"
    tried = (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}")
    for python in tried:
        try:
            # A shell starts the interpreter: setpriv itself could start one that only root may.
            start = f"exec {python} -c 'import orchestrator.faces.cli.app, docker'"
            caller.run("sh", "-c", start, cwd=caller.home)
        except (AssertionError, OSError):
            continue
        return python
    raise AssertionError(f"user `{caller.name}` can start none of {', '.join(tried)}")
