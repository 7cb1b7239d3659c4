"""Every git command: the gate to git, which no other module starts.

Git is told explicitly where its directory and work tree are, never looks for them, and never runs
anything a repository or a user's configuration names: `gitsecurityboundary` in git's own manual
says why. Filters are the exception: they run where the user's own checkout is read, and are
switched off (`Repository.without_filters`) wherever a worker's files are.
"""

import copy
import os
import re
import resource
import subprocess
import tempfile
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tenacity import retry, retry_if_exception, stop_after_attempt, wait_exponential

from orchestrator.errors import NoRepositoryError, RepositoryError
from orchestrator.text.sanitize import is_text, one_line

MINIMUM_VERSION = (2, 30)
TIMEOUT = 600.0
"""Seconds any one command may take."""
MOST_OUTPUT = 64 * 1024**2
"""Bytes of output that are kept of a command that runs with limits."""
_MOST_SAID = 8 * 1024
"""Bytes that are kept of the beginning of a command's error messages, and of their end."""
LONGEST_RECORD = 16 * 1024
"""Bytes of a record in a list of git's: a path that can be checked out has 4096 at most."""
_PIECE = 64 * 1024
_BATCH = ("cat-file", "--batch")

_LOCKED = re.compile(r"Unable to create '[^']*\.lock': File exists")
_CONFIG = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.alternateRefsCommand": "true",
    "core.bigFileThreshold": "128m",
    "core.commitGraph": "false",
    # Half of a split index is a file beside it, which is not there for a copy.
    "core.splitIndex": "false",
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
_LIBRARIES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
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


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one process may use that reads what a worker made."""

    memory: int
    """Bytes of its own memory (`RLIMIT_DATA`); packs that git maps, and the page cache, not
    counted."""
    cpu: int
    """Seconds of CPU time."""
    time: float
    """Seconds from its start to its end."""

    def around(self, command: Sequence[str]) -> list[str]:
        """Return a command line that sets the limits and becomes `command`.

        A shell does it: they hold from the first instruction on, and it takes 2 ms, where
        Python's `preexec_fn` is unsafe beside other threads.
        """
        data = _at_most(resource.RLIMIT_DATA, self.memory) // 1024
        cpu = _at_most(resource.RLIMIT_CPU, self.cpu)
        return ["/bin/sh", "-c", _LIMITED, str(data), str(cpu), *command]


# Soft and hard limit are the same: the kernel ends the process with SIGKILL, and no core is left.
_LIMITED = 'ulimit -d "$0" && ulimit -t "$1" && shift && exec "$@"'


def _at_most(kind: int, wanted: int) -> int:
    """Return `wanted`, or less where this process itself may have no more."""
    _, hard = resource.getrlimit(kind)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


UNTRUSTED = Limits(memory=768 * 1024**2, cpu=240, time=300.0)
"""The limits of every process that reads objects, trees or commits of a worker's."""


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
        limits: Limits | None = None,
    ) -> None:
        """Bind git to a repository.

        Args:
            git_dir: The git directory; None only to find one with `discover`.
            work_tree: Needed by commands that read or write files.
            index: Another index file than the git directory's own.
            alternates: A second object directory to read from.
            config: Further settings, over the repository's own.
            env: Further variables.
            limits: Default: none but `TIMEOUT`. Use `UNTRUSTED` wherever a worker made what is
                read.
        """
        self._limits = limits
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

    def within(self, limits: Limits, config: Mapping[str, str] | None = None) -> "Git":
        """Return the same git with limits for each of its processes, and further settings."""
        limited = copy.copy(self)
        limited._limits = limits
        limited._config = {**self._config, **(config or {})}
        return limited

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
        timeout: float | None = None,
    ) -> bytes:
        """Run a command and give its stdout.

        For commands that print little. What a worker decides the length of is for `listing` and
        `reading`.

        Args:
            arguments: The command and its arguments.
            stdin: Bytes, or a file to read from.
            stdout: A file to write to instead of giving it back.
            env: Variables for this command alone.
            timeout: Seconds. Default: that of the limits, else TIMEOUT.

        Raises:
            GitCommandError: It failed.
            OutputTooLongError: It runs with limits and printed more than MOST_OUTPUT.
            RepositoryError: There is no git, or it took longer than `timeout`.
        """
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as printed:
            # A worker's objects can make git print without end: that never goes to our memory.
            out = stdout or (printed if self._limits else subprocess.PIPE)
            done = self._start(arguments, stdin, out, said, env or {}, self._patience(timeout))
            if done.returncode != 0:
                raise GitCommandError(arguments, done.returncode, _words(said))
            if out is not printed:
                return done.stdout or b""
            printed.seek(0)
            answer = printed.read(MOST_OUTPUT + 1)
        if len(answer) > MOST_OUTPUT:
            raise _too_long(arguments, MOST_OUTPUT)
        return answer

    def _patience(self, timeout: float | None) -> float:
        return timeout or (self._limits.time if self._limits else TIMEOUT)

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
        with self.reading(*arguments, stdin=stdin, timeout=timeout, answers=answers) as output:
            answer = output.read(limit + 1)
        if len(answer) > limit and not cut:
            raise _too_long(arguments, limit)
        return answer[:limit]

    @contextmanager
    def reading(
        self,
        *arguments: str,
        stdin: bytes | IO[bytes] = b"",
        timeout: float | None = None,
        answers: Container[int] = (0,),
    ) -> Iterator[IO[bytes]]:
        """Run a command and give its stdout as it comes, so that any length can be read.

        A command that has more to say when the block ends is ended, and that is no failure.

        Args:
            arguments: The command and its arguments.
            stdin: Bytes, which are written to a file first, or a file to read from.
            timeout: Seconds. Default: that of the limits, else TIMEOUT.
            answers: Exit codes that are no failure.

        Raises:
            GitCommandError: It failed.
        """
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as asked:
            if isinstance(stdin, bytes):
                asked.write(stdin)
                asked.seek(0)
            process = subprocess.Popen(
                self._command(arguments), stdin=asked if isinstance(stdin, bytes) else stdin,
                stdout=subprocess.PIPE, stderr=said, cwd=self._cwd, env=self._env,
                start_new_session=True, close_fds=False,
            )  # fmt: skip
            clock = threading.Timer(self._patience(timeout), process.kill)
            clock.start()
            with process, process.stdout or said as stdout:
                try:
                    yield stdout
                    has_more = bool(stdout.read(1))
                except BaseException:
                    has_more = True
                    raise
                finally:
                    process.kill() if has_more else process.wait()
                    clock.cancel()
            if not has_more and process.returncode not in answers:
                raise GitCommandError(arguments, process.returncode, _words(said))

    def tree(self, commit: str, *options: str) -> Iterator[bytes]:
        """Yield what `git ls-tree` says of each file of a commit, one after the other.

        Args:
            commit: The commit; a worker may have made it.
            options: More options of `ls-tree`.

        Raises:
            GitCommandError: It failed.
        """
        limited = self.within(self._limits or UNTRUSTED)
        with limited.reading("ls-tree", "-r", "-z", "--full-tree", *options, commit) as output:
            yield from records(output, b"\0")

    def consult(self, program: Sequence[str], order: bytes, *, most: int = 64 * 1024) -> bytes:
        """Let a program of ours read objects by itself, and return what it prints in the end.

        It asks a `git cat-file --batch`, so that what a worker made is looked at in a process with
        limits of its own, and never in this one. It is started with two more arguments: the
        descriptors of git's answers and of the questions to git.

        Args:
            program: The command line.
            order: What it reads from its stdin.
            most: Bytes that it may print.

        Raises:
            GitCommandError: It failed, or ran into its limits.
            OutputTooLongError: It printed more than `most`.
        """
        limits = self._limits or UNTRUSTED
        answers, to_program = os.pipe()
        questions, to_git = os.pipe()
        ours = [answers, to_program, questions, to_git]
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as asked:
            asked.write(order)
            asked.seek(0)
            try:
                git = subprocess.Popen(
                    self.within(limits)._command(_BATCH), stdin=questions, stdout=to_program,
                    stderr=said, cwd=self._cwd, env=self._env, start_new_session=True,
                )  # fmt: skip
                reader = subprocess.Popen(
                    limits.around([*program, str(answers), str(to_git)]), stdin=asked,
                    stdout=subprocess.PIPE, stderr=said, env=_libraries(), cwd="/",
                    pass_fds=(answers, to_git), start_new_session=True,
                )  # fmt: skip
            finally:
                for descriptor in ours:
                    os.close(descriptor)
            clock = threading.Timer(limits.time, _end, args=(git, reader))
            clock.start()
            try:
                with reader, reader.stdout or said as stdout:
                    verdict = stdout.read(most + 1)
                    reader.kill() if len(verdict) > most else reader.wait()
            finally:
                clock.cancel()
                _end(git, reader)
                git.wait()
            if len(verdict) > most:
                raise _too_long(_BATCH, most)
            if reader.returncode != 0:
                raise GitCommandError(_BATCH, reader.returncode, _words(said))
        return verdict

    def _command(self, arguments: Sequence[str]) -> list[str]:
        settings = (f"{key}={value}" for key, value in self._config.items())
        command = ["git", *(word for one in settings for word in ("-c", one)), *arguments]
        return self._limits.around(command) if self._limits else command

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
        stdout: IO[bytes] | int,
        stderr: IO[bytes],
        env: Mapping[str, str],
        timeout: float,
    ) -> subprocess.CompletedProcess[bytes]:
        fed: dict[str, Any] = {"stdin": stdin or subprocess.DEVNULL}
        if isinstance(stdin, bytes):
            fed = {"input": stdin}
        try:
            return subprocess.run(
                self._command(arguments),
                stdout=stdout,
                stderr=stderr,
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


def _libraries() -> dict[str, str]:
    """Return what a Python needs of the environment to find its own libraries."""
    return {name: os.environ[name] for name in _LIBRARIES if name in os.environ}


def records(file: IO[bytes], end: bytes) -> Iterator[bytes]:
    """Yield what stands before each `end` in a stream, of which a piece is in memory at a time.

    Raises:
        OutputTooLongError: A record has more than LONGEST_RECORD bytes.
    """
    rest = b""
    while piece := os.read(file.fileno(), _PIECE):
        *whole, rest = (rest + piece).split(end)
        yield from whole
        if len(rest) > LONGEST_RECORD:
            raise OutputTooLongError(f"git prints a record of more than {LONGEST_RECORD} bytes")


def _words(said: IO[bytes]) -> str:
    """Return the beginning and the end of what a command said to stderr."""
    size = said.seek(0, os.SEEK_END)
    said.seek(0)
    words = said.read(_MOST_SAID)
    if size > 2 * _MOST_SAID:
        said.seek(size - _MOST_SAID)
        words += b"\n...\n"
    return (words + said.read(_MOST_SAID)).decode("utf-8", "replace")


def _too_long(arguments: Sequence[str], limit: int) -> OutputTooLongError:
    return OutputTooLongError(f"`git {arguments[0]}` prints more than {limit} bytes")


def _end(*processes: "subprocess.Popen[bytes]") -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            process.kill()


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
    for path in (top, common_dir):
        if not is_text(str(path)):
            raise RepositoryError(
                f"the path of the repository is not UTF-8 text: {one_line(str(path))}",
                hint="records and containers name the path: rename the directory",
            )
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
    """Return git's version, as in (2, 39, 5).

    Raises:
        RepositoryError: It is not installed.
    """
    words = Git(None).text("version").split()
    return tuple(int(part) for part in words[2].split(".")[:3] if part.isdigit())
