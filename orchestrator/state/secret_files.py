"""Store secrets of workers and grants of the credential broker as files in memory.

A secret's value is never in an argument, variable, label or record. It is only on a tmpfs of the
host (a file system in memory), in a directory that one worker's container mounts as `/run/secrets`,
and is removed when the worker has ended.
"""

import os
import re
import shutil
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.errors import ConfigError, EngineError
from orchestrator.base.files.atomic import write_private
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.machine import is_in_memory
from orchestrator.base.text.redact import SHORTEST
from orchestrator.config.settings.container import AGENT_CONFIG

TARGET = "/run/secrets"
"""Directory in a worker's container with one file for each secret."""
VARIABLE = "ORCHESTRATOR_SECRETS"
"""Environment variable with the path `TARGET` in a worker's container."""
MAX_BYTES = 16 * 1024
"""Maximum size of a secret, in bytes."""
_LARGEST_CONFIG = 64 * 1024
_KEYED = re.compile(
    r"""(?<![\w.-])([\w.-]+)["']?[ \t]*[:=][ \t]*(?:"([^"\n]*)"|'([^'\n]*)'|([^\s,{}\[\]"'#]+))"""
)
"""A key and its text in YAML, JSON, TOML and the like."""
_MEMORY = Path("/dev/shm")  # noqa: S108  # a directory of our own in it is made, never found
# Held so that no thread removes the run's directory while another creates files in it.
_threads = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """The secrets that a run's workers get."""

    values: Mapping[str, bytes]
    root: Path | None
    """A directory on a file system in memory; None if the run has no secrets."""
    agent_config: bytes | None = None
    """The agent program's configuration file, which workers get among their secrets."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """Return the files that each worker gets, by name."""
        config = self.agent_config
        return {**self.values, **({} if config is None else {Path(AGENT_CONFIG).name: config})}

    @property
    def keys_in_config(self) -> tuple[dict[str, str], ...]:
        """Return the values in the configuration file, each with its key; some may be secret."""
        text = (self.agent_config or b"").decode(errors="replace")
        # The name of a variable, as in `token_env: NAME`, is no secret.
        return tuple(
            {key: double or single or plain}
            for key, double, single, plain in _KEYED.findall(text)
            if not key.lower().endswith("_env")
        )

    def place(self, run_id: str, worker_id: int) -> Path | None:
        """Return the directory with the secrets of one worker, which may not exist; None without.

        The directory is only there while `laid_out` is in use.
        """
        if self.root is None:
            return None
        return _run_directory(self.root, run_id) / f"worker-{worker_id}"

    @contextmanager
    def laid_out(
        self, run_id: str, worker_id: int, owner: tuple[int, int], *, again: bool = False
    ) -> Iterator[Path | None]:
        """Write the secrets for one worker, and remove them when the `with` block ends.

        With `again`, the files may exist already, because a process that has died wrote them.

        Raises:
            EngineError: The files could not be written.
        """
        directory = self.place(run_id, worker_id)
        if directory is None:
            yield None
            return
        try:
            if not again:
                with _threads:
                    _write(directory, self.files, owner)
            yield directory
        finally:
            with _threads:
                # protection: another-users-directory-is-not-removed
                if _is_ours(directory.parent):
                    # protection: secrets-are-removed-after-any-error
                    _remove(directory)
                    with suppress(OSError):
                        directory.parent.rmdir()


def read_secrets(
    entries: Sequence[str],
    environ: Mapping[str, str],
    *,
    agent_config: Path | bytes | None = None,
) -> Secrets:
    """Read the secrets that the user named, and the agent program's configuration file.

    Args:
        entries: The secrets: `NAME` (a variable) or `NAME=@FILE`.
        environ: The caller's environment variables.
        agent_config: The configuration file or, if it was read before, its content.

    Raises:
        ConfigError: Some secrets are missing, too short or too long (the message names all of these
            secrets), the configuration file is unreadable or too large, or the machine has no file
            system in memory to store secrets.
    """
    values: dict[str, bytes] = {}
    problems = []
    for entry in entries:
        name, _, file = entry.partition("=@")
        try:
            values[name] = _read_secret(name, file, environ)
        except ConfigError as error:
            problems.append(error)
    content = None if isinstance(agent_config, Path) else agent_config
    if isinstance(agent_config, Path):
        try:
            # protection: size-of-agent-config-limited
            content = read_limited(agent_config, most=_LARGEST_CONFIG, follow=True)
        except OSError as error:
            problems.append(
                ConfigError(
                    f"the agent program's configuration file `{agent_config}` cannot be read: "
                    f"{error.strerror}",
                    key="agent-config.unreadable",
                    hint="`--agent-config FILE` takes a file in the program's own format",
                )
            )
    if len(problems) == 1:
        raise problems[0]
    if problems:
        message = "; ".join(error.message for error in problems)
        raise ConfigError(message, key="secret.unusable", hint=problems[0].hint)
    has_files = bool(values) or content is not None
    root = memory_root(environ) if has_files else None
    return Secrets(values=values, root=root, agent_config=content)


def _read_secret(name: str, file: str, environ: Mapping[str, str]) -> bytes:
    if file:
        try:
            with Path(file).open("rb") as opened:
                # protection: length-of-read-secret-files-limited
                value = opened.read(MAX_BYTES + 1)
        except OSError as error:
            raise ConfigError(
                f"secret file `{file}` cannot be read: {error.strerror}",
                key="secret.unreadable",
                hint="use a readable file in `--secret NAME=@FILE`",
            ) from error
    elif name in environ:
        value = os.fsencode(environ[name])
    else:
        raise ConfigError(
            f"secret `{name}` is not set in the environment",
            key="secret.unset",
            hint=f"set the variable, or read the secret from a file with `--secret {name}=@FILE`",
        )
    # protection: long-secrets-refused
    if len(value) > MAX_BYTES:
        raise ConfigError(
            f"secret `{name}` is larger than {MAX_BYTES // 1024} KiB",
            key="secret.too-large",
            hint="encrypt the data, pass the key as a secret, and put the data into the repository",
        )
    # protection: short-secrets-refused
    if max((len(line.strip()) for line in value.splitlines()), default=0) < SHORTEST:
        raise ConfigError(
            f"secret `{name}` has no line of at least {SHORTEST} bytes",
            key="secret.too-short",
            hint="short values also occur in ordinary words of a log; use a longer secret",
        )
    return value


def memory_root(environ: Mapping[str, str]) -> Path:
    """Return a directory in memory (on a tmpfs) to which this user can write.

    Raises:
        ConfigError: The machine has no such directory; secrets are never written to a disk.
    """
    for root in _candidates(environ):
        # protection: secrets-are-in-memory-only
        if is_in_memory(root) and os.access(root, os.W_OK | os.X_OK):
            return root
    raise ConfigError(
        "secrets need a writable directory in memory (tmpfs), but there is none",
        key="secret.no-memory",
        hint=f"mount a tmpfs on {_MEMORY}, or set `XDG_RUNTIME_DIR` to a directory on a tmpfs",
    )


def _candidates(environ: Mapping[str, str]) -> tuple[Path, ...]:
    given = environ.get("XDG_RUNTIME_DIR")
    return (*((Path(given),) if given else ()), Path(f"/run/user/{os.getuid()}"), _MEMORY)


def _write(directory: Path, values: Mapping[str, bytes], owner: tuple[int, int]) -> None:
    try:
        _own_directory(directory.parent)
        _write_files(directory, values, owner)
    except OSError as error:
        raise EngineError(
            f"cannot write a worker's secrets to memory: {error.strerror}", key="secret.unwritable"
        ) from error


def keep_private(root: Path, run_id: str, name: str, content: bytes) -> None:
    """Write a file to the run's directory in memory; only the caller's user can read it.

    Raises:
        EngineError: The file could not be written.
    """
    directory = _run_directory(root, run_id)
    try:
        with _threads:
            _own_directory(directory)
            write_private(directory / name, content)
    except OSError as error:
        raise EngineError(
            f"cannot keep secret inputs in memory: {error.strerror}", key="secret.unwritable"
        ) from error


def private_directory(root: Path, run_id: str) -> Path:
    """Return the run's directory in memory, which only the caller's user can read.

    Raises:
        EngineError: The directory belongs to another user.
        OSError: The directory could not be created.
    """
    directory = _run_directory(root, run_id)
    with _threads:
        _own_directory(directory)
    return directory


def read_private(run_id: str, name: str, environ: Mapping[str, str]) -> bytes | None:
    """Return the content of a file that `keep_private` wrote; None if the file is gone."""
    for root in _candidates(environ):
        directory = _run_directory(root, run_id)
        # protection: another-users-private-values-are-not-read
        if _is_ours(directory):
            try:
                return (directory / name).read_bytes()
            except OSError:
                continue
    return None


def grant_directory(root: Path, run_id: str, owner: tuple[int, int]) -> Path:
    """Return the directory for the grants, which is in memory and belongs to the broker's user.

    Args:
        root: A directory on a file system in memory.
        run_id: Id of the run.
        owner: User of the broker.

    Raises:
        EngineError: The directory could not be created.
    """
    try:
        found = private_directory(root, run_id) / "broker"
        found.mkdir(mode=0o700, exist_ok=True)
        os.chown(found, *owner)
    except OSError as error:
        raise EngineError(
            f"cannot write the credential broker's keys: {error.strerror}", key="secret.unwritable"
        ) from error
    return found


def write_grant(directory: Path, name: str, content: bytes, owner: tuple[int, int]) -> None:
    """Write a worker's grant (allowed API calls), so that the broker sees no half-written file.

    Raises:
        EngineError: The file could not be written.
    """
    try:
        write_private(directory / name, content, mode=0o400, owner=owner)
    except OSError as error:
        raise EngineError(
            f"cannot write the credential broker's keys: {error.strerror}", key="secret.unwritable"
        ) from error


def remove_grant(directory: Path, name: str) -> None:
    """Remove a worker's grant if it exists."""
    with suppress(OSError):
        (directory / name).unlink()


def _own_directory(directory: Path) -> None:
    # protection: runs-directory-is-private-to-caller
    directory.mkdir(mode=0o700, exist_ok=True)
    # protection: existing-directory-of-another-user-refused
    if not _is_ours(directory):
        # All users can write to the parent directory, so another user may have created this one
        # first.
        raise EngineError(
            f"secrets cannot be stored in {directory}, which is not a directory of your own",
            key="secret.directory",
            hint="set `XDG_RUNTIME_DIR` to a directory of your own on a tmpfs",
        )


def _write_files(directory: Path, values: Mapping[str, bytes], owner: tuple[int, int]) -> None:
    # A process that died before its container started may have left the directory.
    _remove(directory)
    # protection: workers-directory-is-private-while-it-is-written
    directory.mkdir(mode=0o700)
    for name, value in values.items():
        # protection: secret-files-are-newly-created
        # protection: secret-files-do-not-follow-links
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        # protection: secret-files-are-private-to-worker
        descriptor = os.open(directory / name, flags, 0o400)
        with os.fdopen(descriptor, "wb") as file:
            file.write(value)
            # protection: secret-files-belong-to-worker
            os.fchown(descriptor, *owner)
    # protection: workers-directory-is-private-to-worker
    directory.chmod(0o500)
    # protection: secret-directory-belongs-to-worker
    os.chown(directory, *owner)


@contextmanager
def readable_directory(root: Path, run_id: str) -> Iterator[Path]:
    """Make a directory in memory that all users of a container can read, for one `with` block.

    If this process is killed, `forget` removes it.

    Raises:
        EngineError: The run's directory belongs to another user.
    """
    with _threads:
        run = _run_directory(root, run_id)
        _own_directory(run)
        directory = run / "readable"
        _remove(directory)
        directory.mkdir()
        directory.chmod(0o755)
    try:
        yield directory
    finally:
        with _threads:
            _remove(directory)
            with suppress(OSError):
                run.rmdir()


def forget(run_id: str, environ: Mapping[str, str]) -> None:
    """Remove the secrets and private files that a dead run left in memory."""
    for root in _candidates(environ):
        directory = _run_directory(root, run_id)
        # protection: another-users-directory-is-not-forgotten
        if _is_ours(directory):
            _remove(directory)


def _run_directory(root: Path, run_id: str) -> Path:
    return root / f"orchestrator-{run_id}"


def _is_ours(directory: Path) -> bool:
    try:
        info = directory.lstat()
    except OSError:
        return False
    # protection: linked-directory-refused
    # protection: directory-of-another-owner-refused
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()


def _remove(directory: Path) -> None:
    # The owner of a directory with mode 500 cannot remove its files.
    for folder in (directory, *directory.glob("worker-*")):
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o700)
    shutil.rmtree(directory, ignore_errors=True)
