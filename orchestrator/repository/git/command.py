"""Run git commands. No other module starts git.

The location of the git directory and work tree is always given explicitly, so that git does not
search for them. Git never runs a program that a repository or a user's configuration names:
`gitsecurityboundary` in git's own manual says why. `programs.py` lists the exceptions.
"""

import copy
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tenacity import retry, retry_if_exception, stop_after_attempt, wait_exponential

from orchestrator.base.errors import (
    GitCommandError,
    NoRepositoryError,
    OutputTooLongError,
    RepositoryError,
)
from orchestrator.base.text.sanitize import is_text, one_line
from orchestrator.repository.git.defaults import (
    CONFIG,
    ENVIRONMENT,
    FOR_REMOTES,
    KEPT,
    PROGRAMS_FOR_REMOTES,
    REMOTES,
    SEALED,
)
from orchestrator.repository.git.failures import excerpt, no_work_tree
from orchestrator.repository.git.limits import UNTRUSTED, Limits, creating_for
from orchestrator.repository.programs import Listing, Use, absolute_path, leads_into, overridden

MINIMUM_VERSION = (2, 30)
TIMEOUT = 600.0
"""Default timeout of a git command, in seconds."""
MOST_OUTPUT = 64 * 1024**2
"""Maximum size in bytes of the output of a git command that runs with resource limits."""
LONGEST_RECORD = 16 * 1024
"""Maximum bytes of a record in git's output; a path that can be checked out has at most 4096."""
_PIECE = 64 * 1024
_SINCE_VARIABLES = (2, 31)
"""Version of git that reads settings from variables with any key."""
_HOMES = ("HOME", "XDG_CONFIG_HOME")
_ORIGINS = ("--show-scope", "--show-origin", "-z")
_listings: dict[tuple[str, ...], Listing] = {}
"""The settings that were listed last, by git directory and home directory."""

_LOCKED = re.compile(r"Unable to create '[^']*\.lock': File exists")


def _is_locked(error: BaseException) -> bool:
    # Another git process, perhaps the user's, holds a lock for a moment. The command changed
    # nothing, so it may be repeated.
    return isinstance(error, GitCommandError) and bool(_LOCKED.search(error.stderr))


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
        owner: tuple[int, int] | None = None,
        use: Use | None = None,
        sealed: bool = False,
    ) -> None:
        """Store the location of the repository and the settings of its commands.

        Args:
            git_dir: The git directory; None only to find a repository with `discover`.
            work_tree: Required by commands that read or write files.
            index: Index file to use instead of the git directory's own.
            alternates: An additional object directory to read from.
            config: Settings that override the repository's own.
            env: Additional environment variables.
            limits: Limits of the processes: `UNTRUSTED` for commands that read data of a worker.
                Default: no limit but `TIMEOUT`.
            owner: uid and gid of the files that commands create. Default: the caller's.
            use: Which programs of the user may run. Default: none.
            sealed: Whether the git directory is one of the orchestrator's own, for which no setting
                of the user or of the machine counts.
        """
        self._limits = limits
        self._owner = owner
        self._use = use
        self._config = {**CONFIG, **(REMOTES if use == Use.REMOTES else {}), **(config or {})}
        self._cwd = work_tree
        # protection: clean-environment
        self._env = {key: os.environ[key] for key in KEPT if key in os.environ} | dict(ENVIRONMENT)
        # A relative directory would be one of the work tree, whose files may be a worker's.
        # protection: programs-are-not-looked-up-in-work-tree
        self._env["PATH"] = absolute_path(self._env.get("PATH", os.defpath))
        if use == Use.REMOTES:
            asked = {key: os.environ[key] for key in FOR_REMOTES if key in os.environ}
            # protection: programs-of-tree-in-variables-reach-no-remote
            self._env |= {
                key: value
                for key, value in asked.items()
                if key not in PROGRAMS_FOR_REMOTES or not leads_into(value, work_tree or Path())
            }
        self._lists = git_dir is not None and not sealed
        if sealed:
            # protection: own-git-directories-have-no-other-settings
            self._env = {
                **{key: value for key, value in self._env.items() if key not in _HOMES},
                **SEALED,
            }
        places = {
            "GIT_DIR": git_dir,
            "GIT_WORK_TREE": work_tree,
            "GIT_INDEX_FILE": index,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": alternates,
        }
        self._env |= {key: str(place) for key, place in places.items() if place is not None}
        self._env |= env or {}

    def within(
        self,
        limits: Limits | None,
        config: Mapping[str, str] | None = None,
        *,
        use: Use | None = None,
    ) -> "Git":
        """Return a copy whose git processes have these resource limits and additional settings.

        With `use`, they may also run these programs of the user.
        """
        limited = copy.copy(self)
        limited._limits = limits
        limited._config = {**self._config, **(config or {})}
        limited._use = use or self._use
        return limited

    def settings(self) -> Mapping[str, str]:
        """Return the effective settings of the user for the repository, as they are now."""
        return dict(self._listed())

    def _listed(self) -> tuple[tuple[str, str], ...]:
        """Return the settings of the user for the repository, with repetitions.

        They are listed again when a file has changed: another process may change them at any time,
        and a file that the configuration includes may be one of the tree.
        """
        place = tuple(self._env.get(name, "") for name in ("GIT_DIR", *_HOMES))
        known = _listings.get(place)
        # protection: changed-settings-are-listed-again
        if known is None or not known.is_current():
            command = ["git", *self._settings(self._config), "config", "--list", *_ORIGINS]
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, cwd=self._cwd,
                env=self._env, timeout=TIMEOUT, check=False, start_new_session=True,
            )  # fmt: skip
            if done.returncode != 0:
                said = done.stderr.decode("utf-8", "replace")
                raise GitCommandError(("config", "--list"), done.returncode, said)
            known = Listing.parse(os.fsdecode(done.stdout), *place)
            _listings[place] = known
        return known.settings

    @staticmethod
    def _settings(config: Mapping[str, str]) -> Iterator[str]:
        for key, value in config.items():
            yield from ("-c", f"{key}={value}")

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
            # A worker's objects can make git print without end: to a file, not to memory.
            out = stdout or (printed if self._limits else subprocess.PIPE)
            done = self._start(arguments, stdin, out, said, env or {}, self._patience(timeout))
            if done.returncode != 0:
                raise GitCommandError(arguments, done.returncode, excerpt(said))
            if out is not printed:
                return done.stdout or b""
            printed.seek(0)
            answer = printed.read(MOST_OUTPUT + 1)
        # protection: output-of-limited-commands-limited
        if len(answer) > MOST_OUTPUT:
            raise too_long(arguments, MOST_OUTPUT)
        return answer

    def _patience(self, timeout: float | None) -> float:
        # protection: timeout-of-processes-that-read-workers-objects
        return timeout or (self._limits.time if self._limits else TIMEOUT)

    def listing(
        self,
        *arguments: str,
        limit: int,
        timeout: float | None = None,
        answers: Container[int] = (0,),
        cut: bool = False,
    ) -> bytes:
        """Run a command whose output may be long because of a worker, and return its stdout.

        Args:
            arguments: The command and its arguments.
            limit: Maximum number of bytes of output; memory stays bounded.
            timeout: Seconds. Default: TIMEOUT.
            answers: Exit codes that mean success.
            cut: Truncate longer output to `limit` bytes instead of raising an error.

        Raises:
            GitCommandError: The command failed.
            OutputTooLongError: The command printed more than `limit`, and was killed.
        """
        with self.reading(*arguments, timeout=timeout, answers=answers) as output:
            # protection: length-of-listings-limited
            answer = output.read(limit + 1)
        # protection: records-that-are-too-long-are-refused
        if len(answer) > limit and not cut:
            raise too_long(arguments, limit)
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

        A command that is still printing when the `with` block ends is killed without an error.

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
            given = asked if isinstance(stdin, bytes) else stdin
            process = self.start(*arguments, stdin=given, stdout=subprocess.PIPE, stderr=said)
            clock = threading.Timer(self._patience(timeout), process.kill)
            # protection: listings-have-timeout
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
                raise GitCommandError(arguments, process.returncode, excerpt(said))

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

    @property
    def limits(self) -> Limits | None:
        """Return the resource limits of the git processes, if they have any."""
        return self._limits

    def start(
        self,
        *arguments: str,
        stdin: IO[bytes] | int,
        stdout: IO[bytes] | int,
        stderr: IO[bytes],
        keeps_leases: bool = True,
    ) -> "subprocess.Popen[bytes]":
        """Start a command and return its process; the caller must wait for its end.

        With `keeps_leases`, the process inherits open lock files of this process, which stay locked
        until both processes have ended.
        """
        command, env = self._command(arguments)
        # protection: ctrl-c-does-not-reach-listings
        return subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=self._cwd, env=env,
            start_new_session=True, close_fds=not keeps_leases,
        )  # fmt: skip

    def _command(self, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Return the command line and the environment of a git command."""
        configured = self._listed() if self._lists else ()
        off = overridden(configured, use=self._use, tree=self._cwd)
        # On a command line, a key ends at the first `=`.
        plain = {key: value for key, value in off.items() if "=" not in key}
        others = {key: value for key, value in off.items() if "=" in key}
        if others and version() < _SINCE_VARIABLES:
            raise RepositoryError(
                f"git is too old to override the setting `{one_line(next(iter(others)))}`",
                key="git.too-old",
                hint="install git 2.31 or newer, or use a name without `=`",
            )
        env = dict(self._env)
        for number, (key, value) in enumerate(others.items()):
            env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        if others:
            env["GIT_CONFIG_COUNT"] = str(len(others))
        command = ["git", *self._settings({**plain, **self._config}), *arguments]
        command = creating_for(self._owner, command)
        return self._limits.around(command) if self._limits else command, env

    def text(self, *arguments: str, stdin: bytes | None = None) -> str:
        """Run a command and return its stdout as text without the final newline."""
        return self.run(*arguments, stdin=stdin).decode("utf-8", "surrogateescape").rstrip("\n")

    def succeeds(self, *arguments: str, stdin: bytes | None = None) -> bool:
        """Run a command and return whether its exit code is 0; 1 returns False.

        Raises:
            GitCommandError: Any other exit code.
        """
        try:
            self.run(*arguments, stdin=stdin)
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
            command, own_env = self._command(arguments)
            # protection: commands-have-timeout
            # protection: ctrl-c-does-not-reach-git
            return subprocess.run(
                command,
                stdout=stdout,
                stderr=stderr,
                cwd=self._cwd,
                env={**own_env, **env},
                timeout=timeout,
                check=False,
                # A new session, so that Ctrl-C at a terminal does not interrupt git in the middle.
                start_new_session=True,
                # A git process that outlives this one inherits leases and locks, and nothing else.
                close_fds=False,
                **fed,
            )
        except FileNotFoundError as error:
            if self._cwd is not None and not self._cwd.exists():
                raise RepositoryError(
                    f"the directory {self._cwd} does not exist", key="directory.missing"
                ) from error
            raise RepositoryError(
                "git is not installed", key="git.missing", hint="install git: `apt-get install git`"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise RepositoryError(
                f"`git {arguments[0]}` took longer than {timeout:g} s", key="git.timeout"
            ) from error


def records(file: IO[bytes], end: bytes) -> Iterator[bytes]:
    """Yield the parts of a stream that `end` terminates, reading one block at a time.

    Raises:
        OutputTooLongError: A record has more than LONGEST_RECORD bytes.
    """
    rest = b""
    while piece := os.read(file.fileno(), _PIECE):
        *whole, rest = (rest + piece).split(end)
        yield from whole
        if len(rest) > LONGEST_RECORD:
            raise OutputTooLongError(
                f"git printed a path or line of more than {LONGEST_RECORD} bytes",
                key="git.output-too-long",
            )


def too_long(arguments: Sequence[str], limit: int) -> OutputTooLongError:
    """Return an error saying that a git command printed more than `limit` bytes."""
    return OutputTooLongError(
        f"`git {arguments[0]}` printed more than {limit} bytes", key="git.output-too-long"
    )


def discover(directory: Path) -> tuple[Path, Path, Path]:
    """Return the top directory, git directory and common git directory of a repository.

    Raises:
        RepositoryError: There is no repository, or it is bare.
    """
    git, ask = Git(None), ("-C", str(directory), "rev-parse")
    try:
        answer = git.text(*ask, "--show-toplevel", "--absolute-git-dir", "--git-common-dir")
    except GitCommandError as error:
        git_dir = directory
        with suppress(GitCommandError):
            git_dir = Path(git.text(*ask, "--absolute-git-dir"))
        raise _not_a_repository(directory, git_dir, error) from error
    top, git_dir, common_dir, *more = (directory / line for line in answer.split("\n"))
    common_dir = common_dir.resolve()  # `--path-format=absolute` needs git 2.31
    if more:
        raise RepositoryError(
            "the path of the repository has a line break: rename the directory",
            key="path.invalid",
        )
    for path in (top, common_dir):
        # protection: paths-must-be-utf-8
        if not is_text(str(path)):
            raise RepositoryError(
                f"the path of the repository is not UTF-8 text: {one_line(str(path))}",
                key="path.invalid",
                hint="records and containers use this path: rename the directory",
            )
    return top, git_dir, common_dir


def _not_a_repository(directory: Path, git_dir: Path, error: GitCommandError) -> RepositoryError:
    if "dubious ownership" in error.stderr:
        return RepositoryError(
            f"git does not trust the repository at {directory}: it belongs to another user",
            key="repository.untrusted",
            hint="run the command as its owner, or `git config --global --add "
            f"safe.directory {directory}`",
        )
    if "work tree" in error.stderr or "bare repository" in error.stderr:
        message, hint = no_work_tree(directory, git_dir)
        return RepositoryError(message, key="repository.bare", hint=hint)
    return NoRepositoryError(
        f"not a git repository: {directory}",
        key="repository.missing",
        hint="run the command inside a repository, or create a repository with `git init`",
    )


def version() -> tuple[int, ...]:
    """Return git's version, for example (2, 39, 5).

    Raises:
        RepositoryError: Git is not installed.
    """
    words = Git(None).text("version").split()
    return tuple(int(part) for part in words[2].split(".")[:3] if part.isdigit())
