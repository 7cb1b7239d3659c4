"""Run git commands; no other module starts git.

The location of the git directory and work tree is always given explicitly, so that git does not
search for them. Git never runs a program that a repository or a user's configuration names:
`gitsecurityboundary` in git's own manual says why. Filters are the exception: they run when the
user's own checkout is read, and are switched off (`Repository.without_filters`) for a worker's
files.
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
"""Default timeout of a command, in seconds."""
MOST_OUTPUT = 64 * 1024**2
"""Most output of a command that runs with limits, in bytes."""
_MOST_SAID = 8 * 1024
"""Bytes kept of the beginning and of the end of a command's error output."""
LONGEST_RECORD = 16 * 1024
"""Most bytes of a record in git's output: a path that can be checked out has at most 4096."""
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
    # A split index keeps half of its data in a second file, which a copy of the index lacks.
    "core.splitIndex": "false",
    "commit.gpgSign": "false",
    # Output of gpg about a signature would stand between the ids that `git log` prints.
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
"""Settings for an index of files whose owner or place has changed without a change of content."""
_LIBRARIES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# Variables of the caller's environment that git gets; any GIT_* variable could redirect git.
_KEPT = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "SSL_CERT_FILE")


class GitCommandError(RepositoryError):
    """A git command failed; the message ends with git's error output."""

    def __init__(self, arguments: Sequence[str], exit_code: int, stderr: str) -> None:
        said = stderr.strip() or f"exit code {exit_code}"
        super().__init__(f"`git {arguments[0]}` failed: {said}")
        self.returncode = exit_code
        self.stderr = stderr


FULL = "No space left on device"
"""Text in a command's error output when the disk is full."""


class OutputTooLongError(RepositoryError):
    """A command printed more than its limit."""


def _is_locked(error: BaseException) -> bool:
    # Another git process, perhaps the user's, holds a lock for a moment. The command changed
    # nothing, so it may be repeated.
    return isinstance(error, GitCommandError) and bool(_LOCKED.search(error.stderr))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Resource limits of a process that reads a worker's data."""

    memory: int
    """Bytes of private memory (`RLIMIT_DATA`), without packs that git maps and the page cache."""
    cpu: int
    """Seconds of CPU time."""
    time: float
    """Seconds from the start of the process to its end."""

    def around(self, command: Sequence[str]) -> list[str]:
        """Return a command line that sets the limits and then executes `command`.

        A shell sets the limits: they hold from the command's first instruction and cost 2 ms.
        Python's
        `preexec_fn` is unsafe when other threads run.
        """
        data = _at_most(resource.RLIMIT_DATA, self.memory) // 1024
        cpu = _at_most(resource.RLIMIT_CPU, self.cpu)
        return ["/bin/sh", "-c", _LIMITED, str(data), str(cpu), *command]


# Soft and hard limit are equal, so that the kernel kills the process with SIGKILL, without a core.
_LIMITED = 'ulimit -d "$0" && ulimit -t "$1" && shift && exec "$@"'


def _at_most(kind: int, wanted: int) -> int:
    """Return `wanted`, or this process's own hard limit if that is lower."""
    _, hard = resource.getrlimit(kind)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


UNTRUSTED = Limits(memory=768 * 1024**2, cpu=240, time=300.0)
"""Limits of every process that reads a worker's objects, trees or commits."""


class Git:
    """Runs git commands on one repository."""

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
        """Store the location of the repository and the settings of its commands.

        Args:
            git_dir: The git directory; None only to find a repository with `discover`.
            work_tree: Required by commands that read or write files.
            index: Index file to use instead of the git directory's own.
            alternates: An additional object directory to read from.
            config: Settings that override the repository's own.
            env: Additional environment variables.
            limits: Default: no limit but `TIMEOUT`. Use `UNTRUSTED` whenever a command reads data
                of a worker.
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
        """Return a copy whose processes have these limits and additional settings."""
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
        """Run a command and return its stdout.

        For short output only. Use `listing` or `reading` when a worker can influence its length.

        Args:
            arguments: The command and its arguments.
            stdin: Bytes, or a file to read from.
            stdout: A file that receives the output; the return value is then empty.
            env: Variables for this command only.
            timeout: Seconds. Default: that of the limits, else TIMEOUT.

        Raises:
            GitCommandError: The command failed.
            OutputTooLongError: The command runs with limits and printed more than MOST_OUTPUT.
            RepositoryError: Git is not installed, or the command took longer than `timeout`.
        """
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as printed:
            # A worker's objects can make git print without end, so such output goes to a file, not
            # memory.
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
        """Run a command whose output may be long because of a worker, and return its stdout.

        Args:
            arguments: The command and its arguments.
            limit: Most bytes of output; memory stays bounded.
            stdin: Input of the command.
            timeout: Seconds. Default: TIMEOUT.
            answers: Exit codes that mean success.
            cut: Truncate longer output to `limit` bytes instead of raising an error.

        Raises:
            GitCommandError: The command failed.
            OutputTooLongError: The command printed more than `limit`, and was killed.
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
        """Run a command and yield its stdout as a stream, so that output of any length can be read.

        A command that is still printing when the block ends is killed; this is no error.

        Args:
            arguments: The command and its arguments.
            stdin: Bytes, or a file to read from.
            timeout: Seconds. Default: that of the limits, else TIMEOUT.
            answers: Exit codes that mean success.

        Raises:
            GitCommandError: The command failed.
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
        """Yield the lines of `git ls-tree` for all files of a commit.

        Args:
            commit: The commit; a worker may have made it.
            options: Additional options of `ls-tree`.

        Raises:
            GitCommandError: The command failed.
        """
        limited = self.within(self._limits or UNTRUSTED)
        with limited.reading("ls-tree", "-r", "-z", "--full-tree", *options, commit) as output:
            yield from records(output, b"\0")

    def consult(self, program: Sequence[str], order: bytes, *, most: int = 64 * 1024) -> bytes:
        """Run a program that reads objects through git, and return the program's output.

        The program queries a `git cat-file --batch` process, so that a worker's data is parsed in a
        process with its own limits, never in this one. Its last two arguments are file descriptors:
        of
        git's output, and of git's input.

        Args:
            program: The command line.
            order: Input of the program.
            most: Most bytes that the program may print.

        Raises:
            GitCommandError: The program failed, or exceeded its limits.
            OutputTooLongError: The program printed more than `most`.
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
        """Run a command and return its stdout as text without the final newline."""
        return self.run(*arguments, stdin=stdin).decode("utf-8", "surrogateescape").rstrip("\n")

    def succeeds(self, *arguments: str) -> bool:
        """Run a command and return whether its exit code is 0; 1 returns False.

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
                # A new session, so that Ctrl-C at a terminal does not interrupt git in the middle.
                start_new_session=True,
                # A git process that outlives this one must inherit the leases and locks; nothing
                # else is inheritable.
                close_fds=False,
                **fed,
            )
        except FileNotFoundError as error:
            raise RepositoryError(
                "git is not installed", hint="install git: `apt-get install git`"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise RepositoryError(f"`git {arguments[0]}` took longer than {timeout} s") from error


def _libraries() -> dict[str, str]:
    """Return the environment variables that Python needs to find its shared libraries."""
    return {name: os.environ[name] for name in _LIBRARIES if name in os.environ}


def records(file: IO[bytes], end: bytes) -> Iterator[bytes]:
    """Yield the records of a stream that `end` terminates, with one piece in memory at a time.

    Raises:
        OutputTooLongError: A record has more than LONGEST_RECORD bytes.
    """
    rest = b""
    while piece := os.read(file.fileno(), _PIECE):
        *whole, rest = (rest + piece).split(end)
        yield from whole
        if len(rest) > LONGEST_RECORD:
            raise OutputTooLongError(f"git printed a record of more than {LONGEST_RECORD} bytes")


def _words(said: IO[bytes]) -> str:
    """Return the beginning and the end of a command's error output."""
    size = said.seek(0, os.SEEK_END)
    said.seek(0)
    words = said.read(_MOST_SAID)
    if size > 2 * _MOST_SAID:
        said.seek(size - _MOST_SAID)
        words += b"\n...\n"
    return (words + said.read(_MOST_SAID)).decode("utf-8", "replace")


def _too_long(arguments: Sequence[str], limit: int) -> OutputTooLongError:
    return OutputTooLongError(f"`git {arguments[0]}` printed more than {limit} bytes")


def _end(*processes: "subprocess.Popen[bytes]") -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            process.kill()


def make_bare(git_dir: Path, *, object_format: str, branch: str = "main") -> None:
    """Create an empty bare repository.

    Without `git init`, because every worker needs three repositories, and `git init` takes as long
    as
    all other steps together.

    Args:
        git_dir: Directory to create.
        object_format: `sha1` or `sha256`.
        branch: The branch that HEAD points at.
    """
    for name in ("objects/info", "objects/pack", "refs/heads"):
        (git_dir / name).mkdir(parents=True)
    (git_dir / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    # Written only when needed: some other readers of git directories fail on extensions.
    extra = f"1\n[extensions]\n\tobjectFormat = {object_format}\n"
    version = "0\n" if object_format == "sha1" else extra
    (git_dir / "config").write_text(f"[core]\n\tbare = true\n\trepositoryformatversion = {version}")


def discover(directory: Path) -> tuple[Path, Path, Path]:
    """Return top level, git directory and common directory of the repository around `directory`.

    Raises:
        RepositoryError: There is no repository, or it is bare.
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
                hint="records and containers use this path: rename the directory",
            )
    return top, git_dir, common_dir


def _not_a_repository(directory: Path, error: GitCommandError) -> RepositoryError:
    if "dubious ownership" in error.stderr:
        return RepositoryError(
            f"git does not trust the repository at {directory}: it belongs to another user",
            hint="run the command as its owner, or `git config --global --add "
            f"safe.directory {directory}`",
        )
    if "work tree" in error.stderr or "bare repository" in error.stderr:
        return RepositoryError(
            f"the repository at {directory} is bare",
            hint="run the command inside a checkout of the repository",
        )
    return NoRepositoryError(
        f"not a git repository: {directory}",
        hint="run the command inside a repository, or create a repository with `git init`",
    )


def version() -> tuple[int, ...]:
    """Return git's version, for example (2, 39, 5).

    Raises:
        RepositoryError: Git is not installed.
    """
    words = Git(None).text("version").split()
    return tuple(int(part) for part in words[2].split(".")[:3] if part.isdigit())
