"""The repository that is attacked, and checks of its state afterwards."""

import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.assurance.attacks.caller import Caller

HONEST = "honest.txt"
_SETTINGS = {
    "core.hooksPath": ".githooks",
    "filter.nb.clean": "./tools/clean.sh",
    "filter.nb.smudge": "sh tools/clean.sh",
    "diff.nb.textconv": "tools/diff.sh",
    "remote.origin.url": "https://token-CANARY-url@localhost:1/r.git",
}
_TOP = "$(git rev-parse --show-toplevel)"
_PROGRAMS = {
    "diff.external": "tools/extdiff.sh",
    "diff.top.textconv": f"{_TOP}/tools/textconv.sh",
    "filter.top.clean": f'"{_TOP}"/tools/clean.sh',
    "core.editor": "tools/editor.sh",
    "core.pager": "./tools/pager.sh",
    "pager.diff": "tools/pager.sh",
    "gpg.program": "tools/sign.sh",
    "commit.gpgSign": "true",
    "core.askPass": "tools/askpass.sh",
    "hook.attack.command": "tools/hook.sh",
    "hook.attack.event": "pre-commit",
}
"""Git settings that run a file of the tree as a program."""
_HOOK = "#!/bin/sh\nexit 0\n"
_FILTER = "#!/bin/sh\nexec cat\n"


@dataclass
class Target:
    """A temporary repository and its state before the attack."""

    caller: Caller
    path: Path
    refs: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    patience: float = 300
    """Maximum duration of each git command, in seconds."""
    worktrees: str = "start"
    """When the worktrees of its runs are created: at the `start`, at the `end`, or `none`."""

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run git as the caller, and return its stdout."""
        return self.caller.run("git", *arguments, cwd=cwd or self.path, timeout=self.patience)

    def worktree(self, number: int) -> Path:
        """Return the path of the worktree of worker `number`."""
        return self.path / f".architect-parallel-{number}"

    @property
    def private(self) -> dict[str, str]:
        """Ids of objects that no worker is given, by the name of a variable."""
        return {
            "PRIVATE": self.refs["refs/heads/private"],
            "PRIVATE_BLOB": self.git("rev-parse", "private:only-here"),
        }

    def remember(self) -> None:
        """Record the refs and files that no attack may change."""
        self.refs = self._refs()
        self.files = dict(self._fingerprints())

    def _refs(self) -> dict[str, str]:
        listing = self.git("for-each-ref", "--format=%(refname) %(objectname)")
        return dict(line.split(" ") for line in listing.splitlines())

    def _fingerprints(self) -> Iterator[tuple[str, str]]:
        git_dir = self.path / ".git"
        for path in (git_dir / "config", *sorted((git_dir / "hooks").iterdir())):
            yield str(path.relative_to(self.path)), hashlib.sha256(path.read_bytes()).hexdigest()

    def harms(self, workers: int, kept_refs: Collection[str] = ()) -> list[str]:
        """Return the changes of refs and files; call this before the user runs git commands.

        Args:
            workers: Number of workers of the run; they may change their own branches.
            kept_refs: Refs in which the results say that workers' other commits are kept.
        """
        mine = {f"refs/heads/architect/parallel-{n}" for n in range(1, workers + 1)} | {*kept_refs}
        now = self._refs()
        harms = [f"{ref} moved" for ref, at in self.refs.items() if now.get(ref) != at]
        harms += [f"{ref} is new" for ref in now if ref not in self.refs and ref not in mine]
        kept = dict(self._fingerprints())
        changed = {name for name, _ in kept.items() ^ self.files.items()}
        # The orchestrator sets `extensions.worktreeConfig` to disable drivers of the tree.
        if "worktreeconfig = true" in (self.path / ".git" / "config").read_text().lower():
            changed.discard(".git/config")
        return harms + _changed(sorted(changed))

    def broken_objects(self) -> list[str]:
        """Check all objects with `git fsck`, and return its error."""
        try:
            self.git("fsck", "--no-dangling", "--strict")
        except AssertionError as error:
            return [f"fsck: {str(error)[-300:]}"]
        return []

    def worktree_harms(self, number: int) -> list[str]:
        """Return what is wrong with the worktree of a worker."""
        path = self.worktree(number)
        pointer = path / ".git"
        if self.worktrees == "none":
            return [f"{path.name} exists"] if os.path.lexists(path) else []
        if not path.exists():
            return ["there is no worktree"]
        if not stat.S_ISREG(pointer.lstat().st_mode):
            return [".git was replaced"]
        if not pointer.read_text().startswith(f"gitdir: {self.path}/.git/worktrees/"):
            return [".git points elsewhere"]
        head = self.git("symbolic-ref", "HEAD", cwd=path)
        harms = [] if head == f"refs/heads/architect/parallel-{number}" else [f"HEAD is {head}"]
        return harms + list(self._odd_files(path))

    def _odd_files(self, top: Path) -> Iterator[str]:
        for folder, directories, files in os.walk(top):
            for name in (*directories, *files):
                info = (Path(folder) / name).lstat()
                kind = stat.S_IFMT(info.st_mode)
                if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                    yield f"special file: {name!r}"
                if info.st_mode & (stat.S_ISUID | stat.S_ISGID) and kind == stat.S_IFREG:
                    yield f"setuid file: {name!r}"
                if info.st_uid != self.caller.uid:
                    yield f"belongs to {info.st_uid}: {name!r}"
                if info.st_size > 1 << 30:
                    yield f"huge file: {name!r}"
                if name == ".git" and folder != str(top):
                    yield f"nested repository: {os.path.relpath(folder, top)!r}"


def _changed(names: list[str]) -> list[str]:
    rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return [f"{names[0]}{rest} changed"] if names else []


def make_target(caller: Caller, path: Path, kind: str, *, worktrees: str = "start") -> Target:
    """Create a repository with a branch that no worker is given.

    Args:
        caller: The owner.
        path: The directory of the repository.
        kind: `rich` for a submodule and a configuration that names tracked files; `programs` for a
            configuration that names programs in every other way.
        worktrees: When the worktrees of its runs are created.
    """
    path.mkdir(parents=True)
    caller.own(path.parent)
    target = Target(caller, path, worktrees=worktrees)
    target.git("init", "-q")
    _write_files(path)
    caller.own(path)
    target.git("add", "--all")
    target.git("commit", "-qm", "base")
    if kind == "rich":
        _enrich(target)
    target.git("checkout", "-qb", "private")
    (path / "only-here").write_text("CANARY-private-branch\n")
    caller.own(path / "only-here")
    target.git("add", "--all")
    target.git("commit", "-qm", "private")
    target.git("checkout", "-q", "main")
    for key, value in _PROGRAMS.items() if kind == "programs" else ():
        target.git("config", key, value)
    target.remember()
    return target


def _write_files(path: Path) -> None:
    for name, text in {
        "src/app.py": 'print("hello")\n',
        "docs/README.md": "doc\n",
        "a.txt": "a\n",
        "x.nb": "{}\n",
        ".gitattributes": "*.nb filter=nb diff=nb\n",
        ".githooks/pre-commit": _HOOK,
        "tools/clean.sh": _FILTER,
        "tools/diff.sh": _FILTER,
    }.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    for name in (".githooks/pre-commit", "tools/clean.sh", "tools/diff.sh"):
        (path / name).chmod(0o755)


def _enrich(target: Target) -> None:
    """Add what many repositories have: a submodule, tracked hooks and filters, a token."""
    library = target.path.parent / f"{target.path.name}-library"
    library.mkdir()
    (library / "lib.c").write_text("lib\n")
    target.caller.own(library)
    for arguments in (("init", "-q"), ("add", "--all"), ("commit", "-qm", "library")):
        target.git(*arguments, cwd=library)
    allowed = ("-c", "protocol.file.allow=always")
    target.git(*allowed, "submodule", "--quiet", "add", str(library), "vendor/lib")
    target.git("commit", "-qm", "submodule")
    for key, value in _SETTINGS.items():
        target.git("config", key, value)
