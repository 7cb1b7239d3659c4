"""Every git command: the gate to git, which no other module starts.

Git is told explicitly where its directory and work tree are, never looks for them, and never runs
anything a repository or a user's configuration names: `gitsecurityboundary` in git's own manual
says why. Filters are the exception: they run where the user's own checkout is read, and are
switched off (`Repository.without_filters`) wherever a worker's files are.
"""

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tenacity import retry, retry_if_exception, stop_after_attempt, wait_exponential

from orchestrator.errors import NoRepositoryError, RepositoryError

MINIMUM_VERSION = (2, 30)
TIMEOUT = 600.0
"""Seconds any one command may take."""

_LOCKED = re.compile(r"Unable to create '[^']*\.lock': File exists")
_CONFIG = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.alternateRefsCommand": "true",
    "core.bigFileThreshold": "128m",
    "core.commitGraph": "false",
    "commit.gpgSign": "false",
    # What a signature makes gpg say would stand among the ids that `git log` lists.
    "log.showSignature": "false",
    "submodule.recurse": "false",
    "diff.ignoreSubmodules": "all",
    "diff.external": "",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "protocol.file.allow": "always",
    "safe.bareRepository": "explicit",
    "transfer.fsckObjects": "true",
}
_ENVIRONMENT = {
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_ADVICE": "0",
    "LC_ALL": "C",
}
SIZE_AND_TIME: Mapping[str, str] = {"core.checkStat": "minimal", "core.trustctime": "false"}
"""Settings for an index of files that have another owner or place now, which is no change."""
# What git may learn from the caller's environment; every GIT_* of theirs could point it elsewhere.
_KEPT = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "SSL_CERT_FILE")


class GitCommandError(RepositoryError):
    """A git command failed; the message ends with what it said."""

    def __init__(self, arguments: Sequence[str], exit_code: int, stderr: str) -> None:
        said = stderr.strip() or f"exit code {exit_code}"
        super().__init__(f"`git {arguments[0]}` failed: {said}")
        self.returncode = exit_code
        self.stderr = stderr


FULL = "No space left on device"
"""How a command that found the disk full says so."""


class OutputTooLongError(RepositoryError):
    """A command printed more than it may."""


def _is_locked(error: BaseException) -> bool:
    # Somebody else's git, the user's own perhaps, holds a lock for a moment; nothing was done yet.
    return isinstance(error, GitCommandError) and bool(_LOCKED.search(error.stderr))


class Git:
    """Git on one repository, told where it is."""

    def __init__(
        self,
        git_dir: Path | None,
        *,
        work_tree: Path | None = None,
        index: Path | None = None,
        alternates: Path | None = None,
        config: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Bind git to a repository.

        Args:
            git_dir: The git directory; None only to find one with `discover`.
            work_tree: Needed by commands that read or write files.
            index: Another index file than the git directory's own.
            alternates: A second object directory to read from.
            config: Further settings, over the repository's own.
            env: Further variables.
        """
        self._config = {**_CONFIG, **(config or {})}
        self._cwd = work_tree
        self._env = {key: os.environ[key] for key in _KEPT if key in os.environ} | _ENVIRONMENT
        places = {
            "GIT_DIR": git_dir,
            "GIT_WORK_TREE": work_tree,
            "GIT_INDEX_FILE": index,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": alternates,
        }
        self._env |= {key: str(place) for key, place in places.items() if place is not None}
        self._env |= env or {}

    @retry(
        retry=retry_if_exception(_is_locked),
        stop=stop_after_attempt(6),
        wait=wait_exponential(multiplier=0.1, max=2),
        reraise=True,
    )
    def run(
        self,
        *arguments: str,
        stdin: bytes | IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT,
    ) -> bytes:
        """Run a command and give its stdout.

        Args:
            arguments: The command and its arguments.
            stdin: Bytes, or a file to read from.
            stdout: A file to write to instead of giving it back.
            env: Variables for this command alone.
            timeout: Seconds.

        Raises:
            GitCommandError: It failed.
            RepositoryError: There is no git, or it took longer than `timeout`.
        """
        done = self._start(arguments, stdin, stdout, env or {}, timeout)
        if done.returncode != 0:
            raise GitCommandError(
                arguments, done.returncode, done.stderr.decode("utf-8", "replace")
            )
        return done.stdout or b""

    def listing(
        self,
        *arguments: str,
        limit: int,
        stdin: bytes = b"",
        timeout: float | None = None,
        answers: Container[int] = (0,),
        cut: bool = False,
    ) -> bytes:
        """Run a command whose output a worker decides the length of, and give its stdout.

        Args:
            arguments: The command and its arguments.
            limit: Bytes; memory stays bounded whatever the command would print.
            stdin: Is written to a file first.
            timeout: Seconds. Default: TIMEOUT.
            answers: Exit codes that are no failure.
            cut: The first `limit` bytes of a longer output are enough.

        Raises:
            GitCommandError: It failed.
            OutputTooLongError: It prints more than `limit`; it was ended.
        """
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as asked:
            asked.write(stdin)
            asked.seek(0)
            process = subprocess.Popen(
                self._command(arguments), stdin=asked, stdout=subprocess.PIPE,
                stderr=said, cwd=self._cwd, env=self._env, start_new_session=True, close_fds=False,
            )  # fmt: skip
            clock = threading.Timer(timeout or TIMEOUT, process.kill)
            clock.start()
            with process, process.stdout or said as stdout:
                answer = stdout.read(limit + 1)
                process.kill() if len(answer) > limit else process.wait()
            clock.cancel()
            if len(answer) > limit and cut:
                return answer[:limit]
            if len(answer) > limit:
                raise OutputTooLongError(f"`git {arguments[0]}` prints more than {limit} bytes")
            if process.returncode not in answers:
                said.seek(0)
                raise GitCommandError(
                    arguments, process.returncode, said.read(4096).decode("utf-8", "replace")
                )
        return answer

    def _command(self, arguments: Sequence[str]) -> list[str]:
        settings = (f"{key}={value}" for key, value in self._config.items())
        return ["git", *(word for setting in settings for word in ("-c", setting)), *arguments]

    def text(self, *arguments: str, stdin: bytes | None = None) -> str:
        """Run a command and give its stdout as text without the final newline."""
        return self.run(*arguments, stdin=stdin).decode("utf-8", "surrogateescape").rstrip("\n")

    def succeeds(self, *arguments: str) -> bool:
        """Run a command that answers by its exit code: 0 yes, 1 no.

        Raises:
            GitCommandError: Any other exit code.
        """
        try:
            self.run(*arguments)
        except GitCommandError as error:
            if error.returncode != 1:
                raise
            return False
        return True

    def _start(
        self,
        arguments: Sequence[str],
        stdin: bytes | IO[bytes] | None,
        stdout: IO[bytes] | None,
        env: Mapping[str, str],
        timeout: float,
    ) -> subprocess.CompletedProcess[bytes]:
        fed: dict[str, Any] = {"stdin": stdin or subprocess.DEVNULL}
        if isinstance(stdin, bytes):
            fed = {"input": stdin}
        try:
            return subprocess.run(
                self._command(arguments),
                stdout=stdout or subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._cwd,
                env={**self._env, **env},
                timeout=timeout,
                check=False,
                # Ctrl-C at a terminal is for us to act on, not for a half-done git.
                start_new_session=True,
                # Leases and locks are inherited, and nothing else: a git that outlives us has them.
                close_fds=False,
                **fed,
            )
        except FileNotFoundError as error:
            raise RepositoryError(
                "git is not installed", hint="install it: `apt-get install git`"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise RepositoryError(f"`git {arguments[0]}` took longer than {timeout} s") from error


def make_bare(git_dir: Path, *, object_format: str, branch: str = "main") -> None:
    """Make an empty bare repository.

    By hand: every worker needs three, and `git init` takes as long as all else about them.

    Args:
        git_dir: Is made.
        object_format: `sha1` or `sha256`.
        branch: What HEAD points at.
    """
    for name in ("objects/info", "objects/pack", "refs/heads"):
        (git_dir / name).mkdir(parents=True)
    (git_dir / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    # Not said where it need not be: other readers of git directories stumble over extensions.
    extra = f"1\n[extensions]\n\tobjectFormat = {object_format}\n"
    version = "0\n" if object_format == "sha1" else extra
    (git_dir / "config").write_text(f"[core]\n\tbare = true\n\trepositoryformatversion = {version}")


def discover(directory: Path) -> tuple[Path, Path, Path]:
    """Find the repository around `directory`: its top level, git directory and common directory.

    Raises:
        RepositoryError: There is none, or it is bare.
    """
    git = Git(None)
    try:
        answer = git.text(
            "-C", str(directory), "rev-parse", "--path-format=absolute",
            "--show-toplevel", "--git-dir", "--git-common-dir",
        )  # fmt: skip
    except GitCommandError as error:
        raise _not_a_repository(directory, error) from error
    top, git_dir, common_dir = (Path(line) for line in answer.split("\n"))
    return top, git_dir, common_dir


def _not_a_repository(directory: Path, error: GitCommandError) -> RepositoryError:
    if "dubious ownership" in error.stderr:
        return RepositoryError(
            f"git does not trust the repository at {directory}: it belongs to another user",
            hint=f"run as its owner, or `git config --global --add safe.directory {directory}`",
        )
    if "work tree" in error.stderr or "bare repository" in error.stderr:
        return RepositoryError(
            f"the repository at {directory} is bare", hint="run inside a checkout of it"
        )
    return NoRepositoryError(
        f"not a git repository: {directory}", hint="run inside one, or make one with `git init`"
    )


def version() -> tuple[int, ...]:
    """Give git's version, as in (2, 39, 5).

    Raises:
        RepositoryError: It is not installed.
    """
    words = Git(None).text("version").split()
    return tuple(int(part) for part in words[2].split(".")[:3] if part.isdigit())
