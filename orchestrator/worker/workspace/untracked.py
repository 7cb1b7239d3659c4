"""Choose untracked files of the user's checkout that every worker gets a copy of.

`--copy` names them, or the file `.worktreeinclude` that other worktree tools read too. Both contain
patterns as in `.gitignore`. A file that may hold a secret is only copied if a pattern without
wildcards names it. A `.worktreeinclude` that came with the repository chooses nothing before the
user has allowed its content, because no list of names can tell which files hold secrets.
"""

import hashlib
import os
import re
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.base.errors import ConfigError, GitCommandError, OrchestratorError
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.files.shared import make_shared
from orchestrator.base.text.quantities import count
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.repository import Repository, is_reserved, is_worker_worktree

LIST = ".worktreeinclude"
_MOST_BYTES = 256 * 1024
"""Maximum size in bytes of the file `.worktreeinclude`."""
_LARGE = 100 * 1024**2
_SHOWN = 3
_MOST_NAMED = 100
"""Number of files from which a notice names directories that are ignored as a whole instead."""
_ALLOWED = "allowed"
"""File in the state directory with the hashes of contents of `.worktreeinclude`, one per line."""
_WILD = re.compile(r"[*?\[\\]")
_THIRD_PARTY = frozenset({"node_modules", "site-packages"})
"""Names of directories with downloaded packages, which hold no secrets, whatever the names of their
files.
"""
_SECRET_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".azure", ".gcloud"})
_SECRET_FILES = (
    ".env", ".env.*", "*.env", ".envrc", ".npmrc", ".pypirc", ".netrc", "_netrc", ".pgpass",
    ".git-credentials", ".htpasswd", ".vault*", "credentials*", "secret.*", "secrets.*",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk",
    "kubeconfig*", "*.kubeconfig", "*.tfstate", "*.tfstate.*", "*.tfvars",
    "service-account*.json", "service_account*.json", "*serviceaccount*.json",
)  # fmt: skip
_HARMLESS = ("*.example", "*.sample", "*.template", "*.dist", "*.pub")


@dataclass(frozen=True)
class Copies:
    """The files that workers get a copy of."""

    files: tuple[str, ...] = ()
    """Paths relative to the repository's top. Symbolic links are copied as links."""
    ignored: tuple[str, ...] = ()
    """Directories that git ignores completely, each with `/` at the end."""
    size: int = 0
    """Total size of all files, in bytes."""
    notices: tuple[str, ...] = ()


NO_COPIES = Copies()


def choose_copies(
    repository: Repository, patterns: Sequence[str], *, heeds_repository: bool = True
) -> Copies:
    """Find the files to copy. No process is started if no file is requested.

    Args:
        repository: The user's repository.
        patterns: Values of `--copy`: untracked files, ignored or not.
        heeds_repository: Whether a `.worktreeinclude` that came with the repository has an effect
            once the user has allowed its content. That of the user always has.

    Raises:
        ConfigError: A pattern with wildcards in `patterns` matches a file that may hold a secret,
            or `.worktreeinclude` is unreadable.
    """
    content = _read_list(repository.top)
    listed = _patterns(content)
    if not patterns and not listed:
        return NO_COPIES
    collapsed = _ls_files(repository, "--exclude-standard", "--directory")
    ignored = tuple(_that_are_ignored(repository, collapsed))
    _refuse_unreadable(repository.top, patterns)
    asked, nested = _without_nested(_matching(repository, patterns))
    # protection: possible-secrets-are-copied-only-if-named
    _refuse_secrets(asked, patterns)
    by_list, more = _without_nested(
        {path for path in _matching(repository, listed) if _covered(path, collapsed)} - asked
    )
    kept_back = set(_secrets(by_list, listed))
    by_list -= kept_back
    foreign = bool(by_list) and _came_with_the_repository(repository)
    # protection: list-of-repository-chooses-nothing-until-allowed
    allowed = heeds_repository and _hash(content) in _allowed(repository)
    withheld = by_list if foreign and not allowed else set()
    by_list = by_list - withheld
    files = sorted(asked | by_list)
    size, outside = _measure(repository.top, files)
    chosen = Copies(
        files=tuple(path for path in files if path not in outside), ignored=ignored, size=size
    )
    notices = list(_notices(chosen, patterns, sorted(kept_back), sorted(outside)))
    if withheld:
        way = (
            "to copy them, allow this content once with `orchestrator config allow`, or name files "
            "with `--copy`"
            if heeds_repository
            else "the preset forbids it; name files with `--copy`"
        )
        notices.append(
            f"`{LIST}`, which came with the repository, names files of yours that were not copied: "
            f"{_all(withheld, ignored)}; {way}"
        )
    elif foreign:
        notices.append(
            f"`{LIST}`, which came with the repository and which you allowed, gives workers copies "
            f"of {count(len(by_list), 'ignored file')}: {_all(by_list - outside, ignored)}"
        )
    if nested | more:
        notices.append(
            "separate repositories inside of the checkout were not copied: "
            f"{_some(sorted(nested | more))}"
        )
    return Copies(chosen.files, chosen.ignored, chosen.size, tuple(notices))


def allow_list(repository: Repository) -> Copies:
    """Record that the user allows the present content of `.worktreeinclude`; return its files.

    Raises:
        ConfigError: There is no such file, or it is unreadable, or the record cannot be written.
    """
    content = _read_list(repository.top)
    if not _patterns(content):
        raise ConfigError(
            f"there is no `{LIST}` with patterns in {repository.top}", key="copy.no-list"
        )
    try:
        make_shared(repository.state_dir)
        hashes = "".join(f"{line}\n" for line in sorted({*_allowed(repository), _hash(content)}))
        write_atomically(repository.state_dir / _ALLOWED, hashes)
    except OSError as error:
        raise ConfigError(
            f"cannot write to {repository.state_dir}: {error.strerror}", key="state.unwritable"
        ) from error
    return choose_copies(repository, ())


def _allowed(repository: Repository) -> frozenset[str]:
    """Return the hashes of the contents that the user allowed. No worker sees this record."""
    try:
        text = read_limited(repository.state_dir / _ALLOWED, most=_MOST_BYTES)
    except OSError:
        return frozenset()
    return frozenset(split_lines(os.fsdecode(text)))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _without_nested(found: set[str]) -> tuple[set[str], set[str]]:
    nested = {path for path in found if path.endswith("/")}
    return found - nested, nested


def is_secret(path: str) -> bool:
    """Return whether a file may hold a secret, judging by its name."""
    *folders, name = path.lower().split("/")
    if _THIRD_PARTY.intersection(folders) or any(
        fnmatchcase(name, pattern) for pattern in _HARMLESS
    ):
        return False
    if folders[-1:] == [".docker"] and name == "config.json":
        return True
    return bool(_SECRET_FOLDERS.intersection(folders)) or any(
        fnmatchcase(name, pattern) for pattern in _SECRET_FILES
    )


def held_back(folder: Path) -> frozenset[str]:
    """Return paths that must not become part of an image which is built from a folder.

    These are git's own directory, workers' worktrees, files that git ignores, and other untracked
    files that are logs or may hold a secret. A Dockerfile that came with the repository could
    choose any of them. Tracked files are part of the project and may enter. The paths are relative
    to the folder, with `/`; a directory stands for everything in it.
    """
    tracked = _listed_below(folder)
    ignored = _listed_below(folder, "--others", "--ignored", "--exclude-standard", "--directory")
    found: set[str] = set()
    for place, folders, files in os.walk(folder):
        inside = os.path.relpath(place, folder).replace(os.sep, "/")
        prefix = "" if inside == "." else f"{inside}/"
        # protection: git-directory-excluded-from-images
        # protection: workers-worktrees-excluded-from-images
        never = [
            name
            for name in (*folders, *files)
            if name == ".git" or is_worker_worktree(Path(place, name))
        ]
        # protection: ignored-files-excluded-from-images
        never += [name for name in (*folders, *files) if f"{prefix}{name}" in ignored]
        private = [name for name in files if _is_private(f"{prefix}{name}", tracked)]
        found |= {f"{prefix}{name}" for name in (*never, *private)}
        folders[:] = [name for name in folders if name not in never]
    return frozenset(found)


def _is_private(path: str, tracked: frozenset[str]) -> bool:
    # protection: untracked-secrets-excluded-from-images
    # protection: untracked-logs-excluded-from-images
    return path not in tracked and (is_secret(path) or _is_log(path))


def _is_log(path: str) -> bool:
    return path.endswith(".log") or "logs" in path.split("/")[:-1]


def _listed_below(folder: Path, *which: str) -> frozenset[str]:
    """Return the paths below a folder that `git ls-files` lists; none if it is in no repository."""
    try:
        repository = Repository(folder)
        listed = repository.git.run("ls-files", "-z", "--full-name", *which)
    except OrchestratorError:
        return frozenset()
    below = os.path.relpath(folder.resolve(), repository.top.resolve()).replace(os.sep, "/")
    prefix = "" if below == "." else f"{below}/"
    paths = (os.fsdecode(path) for path in listed.split(b"\0") if path)
    return frozenset(
        path.removeprefix(prefix).rstrip("/") for path in paths if path.startswith(prefix)
    )


def secret_lines(top: Path, copies: Copies) -> dict[str, str]:
    """Return the variables in copied files such as `.env`; their values must not be shown."""
    found: dict[str, str] = {}
    for path in copies.files:
        name = path.rpartition("/")[2]
        if name == ".env" or name.startswith(".env.") or name.endswith((".env", ".envrc")):
            with suppress(OSError), (top / path).open("rb") as file:
                found |= dict(_variables(file.read(_MOST_BYTES).decode(errors="replace")))
    return found


def _variables(text: str) -> Iterator[tuple[str, str]]:
    for line in split_lines(text):
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        value = value.strip()
        if value[:1] in ("'", '"') and value[-1:] == value[:1]:
            value = value[1:-1]
        if equals and name.strip().isidentifier():
            yield name.strip(), value


def _read_list(top: Path) -> bytes:
    try:
        return read_limited(top / LIST, most=_MOST_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ConfigError(
            f"`{LIST}` cannot be read: {error.strerror}", key="copy.unreadable"
        ) from error


def _patterns(content: bytes) -> tuple[str, ...]:
    lines = split_lines(os.fsdecode(content))
    return tuple(line for line in lines if line.strip() and not line.startswith("#"))


def _came_with_the_repository(repository: Repository) -> bool:
    # On a file system that ignores case, git may track the file under another name.
    return bool(repository.git.run("ls-files", "-z", "--", f":(icase){LIST}"))


def _refuse_unreadable(top: Path, patterns: Sequence[str]) -> None:
    """Refuse a pattern whose directory cannot be read, in which git finds nothing.

    Raises:
        ConfigError: The directory is not readable.
    """
    for pattern in patterns:
        fixed = _WILD.split(pattern.lstrip("/"))[0]
        *folders, _ = fixed.split("/")
        for number in range(1, len(folders) + 1):
            folder = top.joinpath(*folders[:number])
            if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):  # noqa: PTH112
                raise ConfigError(
                    f"`--copy {one_line(pattern)}`: the directory {folder} cannot be read",
                    key="copy.unreadable",
                    hint="make the directory readable for you",
                )


def _matching(repository: Repository, patterns: Sequence[str]) -> set[str]:
    """Return what matches any of the patterns: files, and repositories, which end with `/`."""
    if not patterns:
        return set()
    with tempfile.NamedTemporaryFile(prefix="orchestrator-copy-") as file:
        file.write(os.fsencode("\n".join(patterns) + "\n"))
        file.flush()
        found = _ls_files(repository, f"--exclude-from={file.name}")
    reserved = repository.worktree_names()
    return {path for path in found if not is_reserved(path, reserved)}


def _ls_files(repository: Repository, *which: str) -> set[str]:
    answer = repository.git.run("ls-files", "-z", "--others", "--ignored", *which)
    return {os.fsdecode(path) for path in answer.split(b"\0") if path}


def _that_are_ignored(repository: Repository, collapsed: set[str]) -> list[str]:
    """Return the directories that match an ignore rule themselves, not only through their files."""
    folders = sorted(path for path in collapsed if path.endswith("/"))
    if not folders:
        return []
    asked = b"".join(os.fsencode(path) + b"\0" for path in folders)
    try:
        answer = repository.git.run("check-ignore", "-z", "--stdin", stdin=asked)
    except GitCommandError as error:
        if error.returncode == 1:
            return []
        raise
    return [os.fsdecode(path) for path in answer.split(b"\0") if path]


def _covered(path: str, collapsed: set[str]) -> bool:
    """Return whether `collapsed`, git's ignored paths, has a file or a directory above it."""
    return path in collapsed or any(folder in collapsed for folder in _folders(path))


def _folders(path: str) -> Iterator[str]:
    """Yield the directories above a path, from the top, each with `/` at the end."""
    return (path[:end] for end, letter in enumerate(path, start=1) if letter == "/")


def _secrets(paths: set[str], patterns: Sequence[str]) -> list[str]:
    """Return the files that may hold a secret, unless a pattern without wildcards names them."""
    named = {
        pattern.rstrip().removeprefix("/") for pattern in patterns if not _WILD.search(pattern)
    }
    return sorted(path for path in paths - named if is_secret(path))


def _refuse_secrets(paths: set[str], patterns: Sequence[str]) -> None:
    found = _secrets(paths, patterns)
    if found:
        raise ConfigError(
            f"patterns of `copy` match files that may hold a secret: {_some(found)}",
            key="copy.secret",
            hint=f"if workers need such a file, name it: `--copy {one_line(found[0])}`; "
            "otherwise narrow the pattern",
        )


def _measure(top: Path, files: Sequence[str]) -> tuple[int, set[str]]:
    """Return the total size of files in bytes, and the links that lead out of the repository."""
    size, outside = 0, set()
    for path in files:
        full = f"{top}/{path}"
        try:
            info = os.lstat(full)
            size += info.st_size
            # protection: links-out-of-repository-not-copied
            if stat.S_ISLNK(info.st_mode) and _leads_out(top, path):
                outside.add(path)
        except OSError:
            continue
    return size, outside


def _leads_out(top: Path, path: str) -> bool:
    target = str((top / path).readlink())
    if target.startswith("/"):
        return True
    inside = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120
    return inside == ".." or inside.startswith("../")


def _notices(
    chosen: Copies, patterns: Sequence[str], kept_back: list[str], outside: list[str]
) -> Iterator[str]:
    if kept_back:
        yield (
            f"files were not copied because they may hold a secret: {_some(kept_back)}; copy them "
            f"with `--copy {one_line(kept_back[0])}`"
        )
    if outside:
        yield (
            f"files were not copied because they are links out of the repository: {_some(outside)}"
        )
    missing = [pattern for pattern in patterns if _is_in_vain(pattern, chosen.files)]
    if missing:
        yield f"a pattern of `copy` matches no untracked file: {_some(missing)}"
    if chosen.size > _LARGE:
        size = f"{len(chosen.files)} untracked files, {chosen.size // 1024**2} MiB"
        yield f"{size}, will be copied into every worktree"


def _is_in_vain(pattern: str, files: Sequence[str]) -> bool:
    """Return whether it is certain, without asking git, that a pattern matches no file."""
    if pattern.startswith("!"):
        return False
    if _WILD.search(pattern):
        return not files
    name = pattern.strip("/")
    return not any(f"/{name}/" in f"/{path}/" for path in files)


def _some(paths: Sequence[str]) -> str:
    shown = ", ".join(f"`{one_line(path)}`" for path in paths[:_SHOWN])
    rest = len(paths) - _SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown


def _all(paths: set[str], ignored: Sequence[str]) -> str:
    """Return the names of all files; of very many, directories that are ignored stand for theirs.

    The number of files follows the name of such a directory.
    """
    named: Mapping[str, int] = dict.fromkeys(sorted(paths), 1)
    if len(named) > _MOST_NAMED:
        folders = frozenset(ignored)
        above = (next(filter(folders.__contains__, _folders(path)), path) for path in sorted(paths))
        named = Counter(above)
    return ", ".join(
        f"`{one_line(name)}`" + (f" ({files} files)" if name.endswith("/") else "")
        for name, files in named.items()
    )
