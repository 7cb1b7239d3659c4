"""Runs INSIDE a container of ours, after the worker's is dead: packs what the worker wrote.

It is given to the container's Python as text, together with `git_states`, so it imports the
standard library and that alone. It runs as the worker's own user, without network, on files that
may be hostile; whatever comes out of it is checked again on the host. The worker's git
configuration is never read: git is pointed at a directory that the host made.

Writes to the output directory: `pack` (a thin pack base..tip), `tip` (an object id), `notes` (JSON:
what was left out, and why), and, where the worker left commits that the tip does not reach, `kept`
and `kept.pack` (see `git_states`).
"""

import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from orchestrator.worker.in_container.git_states import Index, Others, carry_over

LARGEST_FILE = 100 * 1024 * 1024
NESTED = ".git-of-a-nested-repository"
MOST_NOTES = 20
LONGEST_NOTE = 200
"""Characters of a note, each up to 12 bytes as JSON: the host reads 64 KiB of notes."""
MOST_POINTERS = 10_000
LARGEST_LIST = 256 << 20
"""Bytes of the list of packed refs that are read, by all searches together."""
ROOM = "ORCHESTRATOR_HARVEST_ROOM"
"""The variable with the bytes that may be written beside what the worker wrote already."""
RESERVED = "ORCHESTRATOR_HARVEST_RESERVED"
"""The variable with the names where workers' worktrees are, with `/` between them."""
_HOLES = 1024 * 1024
"""Bytes of a file that are not on the disk; with fewer it is no sparse file."""
MOST_NAMED = 100
POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_DEBUG = re.compile(
    rb"([^\0]+)\0  ctime: [^\n]*\n  mtime: [^\n]*\n  dev: \d+\tino: (\d+)\n[^\n]*\n[^\n]*\n"
)
_AS_THEY_ARE = "* -text -ident -working-tree-encoding\n"
_CONTENT = re.compile(r"[0-9a-f]{64}")
_OBJECT_FOLDER = re.compile(r"[0-9a-f]{2}|pack")
_OBJECT_FILE = re.compile(r"[0-9a-f]{38}(?:[0-9a-f]{24})?|pack-[0-9a-f]+\.(?:pack|idx)")


class Harvest:
    """One worker's work tree and store, as mounted in this container."""

    def __init__(
        self, workspace: str, store: str, git_dir: str, objects: str, out: str, base: str = ""
    ) -> None:
        self.workspace = workspace
        self.store = store
        self.out = out
        self.notes: list[str] = []
        self.left_out: list[str] = []
        self.why: dict[str, str] = {}
        """Why a file is left out, where it is not for its size."""
        self.room = int(os.environ.get(ROOM, 1 << 32))
        """Bytes of content of git-lfs that may still be handed over."""
        self.holes = self.room
        """Bytes that sparse files may still have beyond what they take on the disk."""
        self.objects = objects
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": "/nonexistent",
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_DIR": git_dir,
            "GIT_WORK_TREE": workspace,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{objects}:{store}/objects",
        }
        self.unread = LARGEST_LIST
        """Bytes of the list of packed refs that may still be read."""
        self.submodules = self._given("submodules.json")
        self.written: list[str] = []
        """Regular files that the worker may have written."""
        self.folders: list[str] = []
        """Directories that the worker may have moved."""
        self.since = -1
        """The last change of a file, in nanoseconds, that was not the worker's."""
        self.others = Others(self, base)
        self.put_together: str | None = None
        """The last of the worker's commits, where these are put together into one."""

    def git(self, *arguments: str, stdin: bytes = b"", check: bool = True) -> str:
        """Run git on the host-made directory."""
        done = self.start(*arguments, stdin=stdin)
        if check and done.returncode:
            raise RuntimeError(f"git {arguments[0]}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode(errors="replace").strip() if not done.returncode else ""

    def start(
        self, *arguments: str, stdin: bytes = b"", **variables: str
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run git with more variables and return how it ended."""
        return subprocess.run(
            ["git", "-c", "safe.directory=*", "-c", "index.skipHash=true", *arguments],
            input=stdin,
            capture_output=True,
            env={**self.env, **variables},
            cwd=variables.get("GIT_WORK_TREE", self.workspace),
            check=False,
        )

    def warn(self, text: str) -> None:
        """Tell people of work that could not be kept, before all that is noted."""
        self.notes.insert(0, text)

    def note(self, what: str, path: str) -> None:
        """Remember that something was left out or changed."""
        path = os.path.relpath(os.path.join(self.workspace, path), self.workspace)
        self.notes.append(f"{what}: {path}")

    def tidy(self, written: str) -> None:
        """Make the tree one that git can read: no special files, nothing locked.

        Args:
            written: The same tree with nothing in it but what the worker wrote, which is an
                overlay's upper layer, or all of the tree.
        """
        if written == self.workspace:
            self.since = made_at(os.path.join(self.env["GIT_DIR"], "made"))
        pending = [""]
        while pending:
            inside = pending.pop()
            self.folders.append(inside)
            directory = os.path.join(self.workspace, inside)
            try:
                make_usable(directory, stat.S_IRWXU)
                with os.scandir(os.path.join(written, inside)) as entries:
                    found = [e.name for e in list(entries) if self._tidy_entry(directory, e)]
                pending += [os.path.join(inside, name) for name in found]
            except OSError as error:
                # A path longer than the system takes: git cannot read it either.
                self.note(f"directory left out ({error.strerror})", directory[:200])

    def _tidy_entry(self, directory: str, entry: "os.DirEntry[str]") -> bool:
        """Deal with one entry; True for a directory to go into."""
        path = os.path.join(directory, entry.name)
        if entry.name == ".git":
            if os.path.relpath(directory, self.workspace) in self.submodules:
                os.rename(path, free_name(os.path.join(directory, NESTED)))
            elif os.path.dirname(path) != self.workspace:
                self.note("nested repository, its files were kept as ordinary files", path)
                os.rename(path, free_name(os.path.join(os.path.dirname(path), NESTED)))
            return False
        info = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            return not entry.name.startswith(NESTED)
        if stat.S_ISREG(info.st_mode):
            make_usable(path, stat.S_IRUSR, info)
            if info.st_ctime_ns > self.since:
                self.written.append(path[len(self.workspace) + 1 :])
            self._judge_size(os.path.relpath(path, self.workspace), info)
        elif not stat.S_ISLNK(info.st_mode) and not is_whiteout(info):
            self.note("special file removed", path)
            os.unlink(path)
        return False

    def _judge_size(self, path: str, info: os.stat_result) -> None:
        """Leave out files that are too large, or stand for more bytes than may be written."""
        if info.st_size > LARGEST_FILE:
            self.left_out.append(path)
            return
        holes = info.st_size - info.st_blocks * 512
        if holes > _HOLES:
            self.holes -= holes
            if self.holes < 0:
                self.left_out.append(path)
                self.why[path] = "sparse file over the disk limit left out"

    def tidy_store(self) -> None:
        """Leave objects and packs alone in the store; all else is put aside.

        A commit graph may lie, an alternates file lead anywhere, a FIFO never answer.
        """
        make_usable(self.store, stat.S_IRWXU)
        aside = os.path.join(self.store, f"aside-{unheard_of()}")
        os.mkdir(aside)
        self._tidy_objects(os.path.join(self.store, "objects"), aside)

    def _tidy_objects(self, objects: str, aside: str) -> None:
        if os.path.lexists(objects) and not is_directory(objects):
            os.rename(objects, os.path.join(aside, "objects"))
        os.makedirs(objects, exist_ok=True)
        make_usable(objects, stat.S_IRWXU)
        for name in os.listdir(objects):
            folder = os.path.join(objects, name)
            if _OBJECT_FOLDER.fullmatch(name) and is_directory(folder):
                self._tidy_folder(folder, aside)
            else:
                put_aside(folder, aside)

    def _tidy_folder(self, folder: str, aside: str) -> None:
        make_usable(folder, stat.S_IRWXU)
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            info = os.lstat(path)
            if stat.S_ISREG(info.st_mode) and _OBJECT_FILE.fullmatch(name):
                make_usable(path, stat.S_IRUSR, info)
            else:
                put_aside(path, aside)

    def parents(self, base: str, branch: str) -> "tuple[str, str]":
        """Choose the worker's last commit for its branch, and the commit that its files are of.

        They differ where HEAD left the branch, as `git checkout --detach HEAD~1` and a bisect do.
        """
        head, own = self.resolve("HEAD"), self.resolve(f"refs/heads/{branch}")
        on_base = [name for name in (head, own) if name and self._descends(name, base)]
        if not on_base:
            self.notes.append(
                "the worker's history is not on top of its base; its branch has only its files"
            )
            return base, base
        tip = on_base[0]
        if own in on_base and head and self._is_ancestor(head, str(own)):
            tip = str(own)
        if self._moves_submodules(base, tip):
            self.put_together = tip
            return base, base
        return tip, head if head and self._is_whole(head, base) else tip

    def _is_ancestor(self, one: str, other: str) -> bool:
        return self.start("merge-base", "--is-ancestor", one, other).returncode == 0

    def _descends(self, commit: str, base: str) -> bool:
        if not self._is_whole(commit, base):
            return False
        return self.git("merge-base", base, commit, check=False) == base

    def _is_whole(self, commit: str, base: str) -> bool:
        """Return whether it is a commit and all that it needs is there."""
        if self.git("cat-file", "-t", commit, check=False) != "commit":
            return False
        needed = ("rev-list", "--objects", "--quiet", commit, f"^{base}")
        return self.start(*needed).returncode == 0

    def _moves_submodules(self, base: str, commit: str) -> bool:
        """Return whether a commit of the worker's names a submodule's commit that only it has."""
        if not self.submodules or commit == base:
            return False
        form = ("--raw", "-m", "-z", "--no-abbrev", "--no-renames", "--format=")
        raw = self.start("log", *form, f"{base}..{commit}").stdout
        listed = self.start("ls-tree", "-r", "-z", base).stdout
        known = set(re.findall(rb"160000 commit ([0-9a-f]+)\t", listed))
        if set(re.findall(rb":[0-7]{6} 160000 [0-9a-f]+ ([0-9a-f]+) ", raw)) <= known:
            return False
        self.notes.append(
            "a commit of its own moved a submodule; its commits were put together into one, "
            "with every submodule as it was"
        )
        return True

    def resolve(self, name: str, depth: int = 5) -> str | None:
        """Read a ref of the worker's store without letting git read its configuration."""
        text = self.read(os.path.join(self.store, name)) or self._packed(name)
        if text.startswith("ref: refs/") and ".." not in text and depth:
            return self.resolve(text.removeprefix("ref: "), depth - 1)
        return text if _OBJECT_ID.fullmatch(text) else None

    def _packed(self, name: str) -> str:
        wanted = f" {name}\n".encode()
        for line in self._lines(os.path.join(self.store, "packed-refs")):
            if line.endswith(wanted):
                return line.partition(b" ")[0].decode(errors="replace")
        return ""

    def _lines(self, path: str) -> "Iterator[bytes]":
        """Yield the lines of a regular file; of each and of all searches together only a part."""
        with self._opened(path) as file:
            while self.unread > 0 and (line := file.readline(1 << 16)):
                self.unread -= len(line)
                yield line

    def read(self, path: str, limit: int = 1024) -> str:
        """Return the start of a regular file, following no link."""
        with self._opened(path) as file:
            return file.read(limit).decode(errors="replace").strip()

    def _opened(self, path: str) -> "BinaryIO":
        """Open a regular file, following no link; what is none is empty."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return io.BytesIO()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return io.BytesIO()
        return open(descriptor, "rb")

    def commit(self, base: str, parent: str, message: str) -> str:
        """Put what is not committed yet on top of `parent`, and give the tip."""
        # -m keeps what the index knows of unchanged files; -i because others differ from the base.
        self.git("read-tree", "-i", "-m", parent)
        self._forget_times()
        index = Index(self)
        self._take_staged(index, parent)
        wanted = [".", *(f":(exclude,top,literal){path}" for path in self.left_out)]
        # --ignore-errors: a name that git refuses must not keep the rest from being added.
        self._add(b"\0".join(os.fsencode(item) for item in wanted))
        self._restore_sparse(index, parent)
        self._leave_copies(parent)
        self._put_pointers(base)
        self._tell_content()
        for path in self.left_out:
            self.note(self.why.get(path, f"file over {LARGEST_FILE >> 20} MiB left out"), path)
        made = self._commit_tree(self.git("write-tree"), parent, message)
        try:
            self.others.keep_index(index, parent, made)
        except (RuntimeError, ValueError) as error:
            self.warn(f"what was only staged could not be kept: {last_line(str(error))}")
        return made

    def bring_all(self, base: str, branch: str, message: str) -> str:
        """Return the tip of the worker's branch; what it does not reach is written to `kept`."""
        tip, at = self.parents(base, branch)
        self.note_copies(base, tip)
        try:
            made = self.commit(base, at, message)
        except RuntimeError as error:
            # The commit is one that git does not check out; its files are kept without it.
            self.warn(f"its last commit cannot be built upon: {last_line(str(error))}")
            at = base
            made = self.commit(base, base, message)
        reached = tip
        if at == tip:
            tip = made
        elif made != at:
            carried = carry_over(self, self.others, (at, made, tip), message)
            if carried is None:
                self.others.keep_commit("uncommitted", made, at)
            tip = carried or tip
        try:
            self.others.keep_commits(reached, without=self.put_together)
        except (OSError, RuntimeError, ValueError) as error:
            self.warn(f"not all of its git store could be read: {last_line(str(error))}")
        self.others.write()
        return tip

    def bring_files(self, base: str, onto: str, message: str) -> str:
        """Commit the files as they are on top of a commit, without what the host would refuse."""
        made = self.commit(base, onto, message)
        tree = self.git("rev-parse", f"{made}^{{tree}}")
        paths = self.start("ls-tree", "-r", "-z", "--name-only", tree).stdout.split(b"\0")[:-1]
        known = set(self.start("ls-tree", "-r", "-z", "--name-only", onto).stdout.split(b"\0"))
        reserved = os.environ.get(RESERVED, ".architect-parallel-*").split("/")
        refused = refused_paths(paths, reserved) - known
        for path in sorted(refused)[:MOST_NOTES]:
            self.note("left out, as git would take its directory for its own", os.fsdecode(path))
        if not refused:
            return made
        lines = b"".join(path + b"\0" for path in refused)
        self.git("update-index", "--force-remove", "-z", "--stdin", stdin=lines)
        return self._commit_tree(self.git("write-tree"), onto, message)

    def _commit_tree(self, tree: str, parent: str, message: str) -> str:
        if tree == self.git("rev-parse", f"{parent}^{{tree}}"):
            return parent
        return self.git("commit-tree", tree, "-p", parent, stdin=message.encode())

    def _forget_times(self) -> None:
        """Let git read every file that the worker wrote or moved, whatever its size and time.

        `cp -p` gives a file the time of another, which may have the same size.
        """
        suspects = {os.fsencode(path) for path in self.written} | self._moved()
        if not suspects:
            return
        entries = self.start("ls-files", "-s", "-z").stdout.split(b"\0")
        known = (entry for entry in entries if entry.partition(b"\t")[2] in suspects)
        # An entry that is given so has neither size nor time.
        lines = (entry.replace(b" 0\t", b"\t", 1) + b"\0" for entry in known)
        self.git("update-index", "-z", "--index-info", stdin=b"".join(lines))

    def _moved(self) -> "set[bytes]":
        """Name the files in the worker's directories that are not those which git knows.

        An overlay's upper layer has a directory that was moved, and not the files in it.
        """
        tops = [path for path in self.folders if path and "/" not in path]
        if not tops:
            return set()
        chosen = [f":(top,literal){path}" for path in tops] if len(tops) < MOST_NAMED else []
        said = self.start("ls-files", "--debug", "-z", "--", *chosen).stdout
        folders = {os.fsencode(path) for path in self.folders}
        moved = set()
        for path, inode in _DEBUG.findall(said):
            with suppress(OSError):
                found = os.lstat(os.path.join(os.fsencode(self.workspace), path))
                if found.st_ino & 0xFFFFFFFF != int(inode) and below(path, folders):
                    moved.add(path)
        return moved

    def _take_staged(self, index: Index, parent: str) -> None:
        """Let git know the files that the worker's does, whatever its ignore patterns say.

        To add them takes their content from the worktree, and drops those that are not there.
        """
        known = set(self.start("ls-files", "-z").stdout.split(b"\0"))
        left_out = {os.fsencode(path) for path in self.left_out}
        modes, staged = index.modes(), index.staged(parent)
        new = modes.keys() - known - left_out
        if not new:
            return
        # A file that was only announced has no content yet.
        empty = self.git("hash-object", "-w", "--stdin")
        entries = {path: staged.get(path, (modes[path], empty)) for path in new}
        lines = (f"{one[0]} {one[1]}\t".encode() + path + b"\0" for path, one in entries.items())
        form = ("update-index", "--add", "--replace", "-z", "--index-info")
        if self.start(*form, stdin=b"".join(lines)).returncode:
            self.warn("files that git ignores, and the worker added by force, were left out")

    def _restore_sparse(self, index: Index, parent: str) -> None:
        """Let files stay that are not there because the worker made its checkout sparse."""
        form = ("-z", "--cached", "--name-only", "--no-renames", "--diff-filter=D")
        gone = set(self.start("diff-index", *form, parent).stdout.split(b"\0")[:-1])
        sparse = gone & index.not_checked_out() if gone else set()
        if sparse:
            entries = self.start("ls-tree", "-r", "-z", parent).stdout.split(b"\0")
            lines = (e + b"\0" for e in entries if e.partition(b"\t")[2] in sparse)
            self.git("update-index", "--add", "-z", "--index-info", stdin=b"".join(lines))

    @property
    def _sparse(self) -> "tuple[str, ...]":
        """Return what makes git add files also where it would not have checked them out."""
        patterns = os.path.join(self.env["GIT_DIR"], "info", "sparse-checkout")
        return ("--sparse",) if os.path.exists(patterns) else ()

    def _leave_copies(self, parent: str) -> None:
        """Take out of the index what was copied into the tree, and is in no commit."""
        copied = self._given("copied.json")
        if not copied:
            return
        added = self._names("diff-index", "--cached", parent)
        ours = b"".join(os.fsencode(path) + b"\0" for path in added if path in copied)
        self.git("update-index", "--force-remove", "-z", "--stdin", stdin=ours)

    def note_copies(self, base: str, parent: str) -> None:
        """Say so where the worker itself committed what was copied into its tree."""
        copied = self._given("copied.json")
        added = self._names("diff-tree", "-r", base, parent) if copied and parent != base else ()
        for path in added:
            if path in copied:
                self.note("a copied file is in its own commits", path)

    def _given(self, name: str) -> "dict[str, list[int | str]]":
        """Read what the host left beside the git directory, where there is something to say."""
        try:
            with open(os.path.join(self.env["GIT_DIR"], name), encoding="ascii") as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return {}

    def _names(self, *command: str) -> "list[str]":
        """List the paths that are new."""
        form = ("-z", "--name-only", "--no-renames", "--diff-filter=A")
        done = self.start(command[0], *form, *command[1:], stdin=b"")
        if done.returncode:
            said = done.stderr.decode(errors="replace")
            raise RuntimeError(f"git {command[0]}: {last_line(said)}")
        return [os.fsdecode(path) for path in done.stdout.split(b"\0") if path]

    def _put_pointers(self, base: str) -> None:
        """Let files of git-lfs be pointers; hand over the content of those that are new."""
        if not os.path.exists(os.path.join(self.env["GIT_DIR"], "lfs.json")):
            return
        given = {str(one[0]): int(one[1]) for one in self._given("lfs.json").values()}
        form = ("-z", "--cached", "--name-only", "--no-renames", "--diff-filter=AMT")
        changed = self.start("diff-index", *form, base).stdout.split(b"\0")[:-1]
        asked = [*changed, *map(os.fsencode, self.left_out)]
        said = self.start(
            "check-attr", "-z", "--stdin", "filter", stdin=b"".join(one + b"\0" for one in asked)
        ).stdout.split(b"\0")
        for path, value in list(zip(said[::3], said[2::3], strict=False))[:MOST_POINTERS]:
            if value == b"lfs" and not self._put_pointer(os.fsdecode(path), given):
                self._leave_content(os.fsdecode(path), base)

    def _tell_content(self) -> None:
        """Say so where git-lfs in the worker's image holds content that nobody hands over."""
        kept = {str(one[0]) for one in self._given("lfs.json").values()}
        with suppress(OSError):
            kept |= set(os.listdir(os.path.join(self.out, "lfs")))
        left = 0
        for _, _, names in os.walk(os.path.join(self.store, "lfs", "objects")):
            left += sum(bool(_CONTENT.fullmatch(name)) and name not in kept for name in names)
            if left > MOST_POINTERS:
                break
        if left:
            self.warn(f"content of git-lfs that only its git store has is not kept: {left} objects")

    def _leave_content(self, path: str, base: str) -> None:
        """Let a file of git-lfs be as it was, whose content does not fit."""
        self.why[path] = "file of git-lfs over the disk limit left out"
        if path not in self.left_out:
            self.left_out.append(path)
        was = self.start("ls-tree", "-z", "--full-tree", base, "--", path).stdout
        gone = f"0 {'0' * len(base)}\t".encode() + os.fsencode(path) + b"\0"
        self.git("update-index", "--add", "-z", "--index-info", stdin=was or gone)

    def _put_pointer(self, path: str, given: "dict[str, int]") -> bool:
        """Let a file be a pointer; False where its content is too large to be handed over."""
        try:
            descriptor = os.open(
                os.path.join(self.workspace, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            )
        except OSError:
            return True
        with open(descriptor, "rb") as file:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or file.read(len(POINTER)) == POINTER:
                return True
            # A sparse file takes no room, and its copy takes all: its size decides, unread.
            if info.st_size > self.room and info.st_size not in given.values():
                return False
            file.seek(0)
            oid = hashlib.file_digest(file, "sha256").hexdigest()
            if oid not in given:
                if info.st_size > self.room:
                    return False
                self.room -= info.st_size
                folder = os.path.join(self.out, "lfs")
                os.makedirs(folder, exist_ok=True)
                file.seek(0)
                with open(os.path.join(folder, oid), "wb") as copy:
                    shutil.copyfileobj(file, copy, 1 << 20)
        text = POINTER + b"oid sha256:%s\nsize %d\n" % (oid.encode(), info.st_size)
        blob = self.git("hash-object", "-w", "--stdin", stdin=text)
        mode = "100755" if info.st_mode & stat.S_IXUSR else "100644"
        line = f"{mode} {blob}\t".encode() + os.fsencode(path) + b"\0"
        self.git("update-index", "--add", "-z", "--index-info", stdin=line)
        if path in self.left_out:
            self.left_out.remove(path)
        return True

    def keep_submodules(self) -> None:
        """Write down as patches what was changed in submodules: nobody may move those."""
        for path, (number, commit) in self.submodules.items():
            tree = os.path.join(self.workspace, path)
            self._tell_commits(path, f"{self.store}/modules/{int(number)}/objects")
            if os.path.realpath(tree) == tree and os.path.isdir(tree):
                self._keep_submodule(path, tree, int(number), str(commit))

    def _tell_commits(self, path: str, objects: str) -> None:
        """Say so where a worker's git directory of a submodule has commits, also stashed ones."""
        if os.path.realpath(objects) != objects or not os.path.isdir(objects):
            return
        aside = os.path.join(self.store, f"aside-{unheard_of()}")
        os.mkdir(aside)
        self._tidy_objects(objects, aside)
        if self.others.has_commits(objects):
            self.warn(f"commits of its own in a submodule are not kept, only its files: {path}")

    def _keep_submodule(self, path: str, tree: str, number: int, commit: str) -> None:
        places = {
            "GIT_DIR": os.path.join(self.env["GIT_DIR"], "submodules", str(number)),
            "GIT_WORK_TREE": tree,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{self.objects}/submodules/{number}",
        }
        large = (os.path.relpath(one, path) for one in self.left_out if one.startswith(f"{path}/"))
        wanted = [".", *(f":(exclude,top,literal){one}" for one in large)]
        self.start(
            "add", "--all", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul",
            stdin=b"\0".join(os.fsencode(one) for one in wanted), **places,
        )  # fmt: skip
        form = ("--cached", "--binary", "--full-index", "--no-renames")
        made = os.path.join(self.out, f"submodule-{number}.patch")
        with open(made, "wb") as file:
            subprocess.run(
                ["git", "-c", "safe.directory=*", "diff-index", "-p", *form, commit],
                stdout=file,
                env={**self.env, **places},
                cwd=tree,
                check=True,
            )
        if not os.path.getsize(made):
            os.unlink(made)

    def _add(self, wanted: bytes, *, again: bool = True) -> None:
        done = self.start(
            "add", "--all", *self._sparse, "--ignore-errors", "--pathspec-from-file=-",
            "--pathspec-file-nul", stdin=wanted,
        )  # fmt: skip
        if done.returncode == 0:
            return
        said = last_line(done.stderr[-1000:].decode(errors="replace"))
        if done.returncode == 1:
            self.notes.append(f"some files could not be added: {said}")
        elif again:
            # One file that cannot be converted as its attributes say would keep all others out.
            write(os.path.join(self.env["GIT_DIR"], "info", "attributes"), _AS_THEY_ARE)
            self.notes.append(f"files were added as they are: {said}")
            self._add(wanted, again=False)
        else:
            raise RuntimeError(f"git add: {said}")

    def finish(self, tip: str) -> None:
        """Write what else the host needs; the tip is the last."""
        self.others.pack(tip, "pack")
        write(os.path.join(self.out, "notes"), json.dumps(few_notes(self.notes)))
        write(os.path.join(self.out, "tip"), tip)


def make_usable(path: str, bits: int, info: os.stat_result | None = None) -> None:
    """Give ourselves rights on a file or directory; only where they are missing."""
    mode = stat.S_IMODE((info or os.lstat(path)).st_mode)
    if mode & bits != bits:
        os.chmod(path, mode | bits)


def is_whiteout(info: os.stat_result) -> bool:
    """Return whether an upper layer says by this entry that a file is gone."""
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def is_directory(path: str) -> bool:
    """Return whether it is one itself, and not a link to one."""
    return stat.S_ISDIR(os.lstat(path).st_mode)


def put_aside(path: str, directory: str) -> None:
    """Move a file or directory out of the way, under any name."""
    if is_directory(path):
        make_usable(path, stat.S_IRWXU)
    os.rename(path, os.path.join(directory, unheard_of()))


def unheard_of() -> str:
    """Return a name that nothing has; to import `tempfile` would take longer than all else."""
    return os.urandom(16).hex()


def free_name(path: str) -> str:
    """Return `path`, or `path` with a number, that does not exist."""
    number = 1
    while os.path.lexists(candidate := path if number == 1 else f"{path}-{number}"):
        number += 1
    return candidate


def last_line(text: str) -> str:
    """Return the last line of what git said."""
    return text.strip().rpartition("\n")[2]


def write(path: str, text: str) -> None:
    """Write a small file."""
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def made_at(path: str) -> int:
    """Return the time of a file that the host made, or -1 where there is none."""
    try:
        return os.lstat(path).st_mtime_ns
    except FileNotFoundError:
        return -1


def refused_paths(paths: "list[bytes]", reserved: "list[str]") -> "set[bytes]":
    """Name the files that make a directory one that git takes for its own, or a worker's.

    Args:
        paths: The files.
        reserved: Names at the top where workers' worktrees are; `*` at the end is any rest.
    """
    names = {os.fsencode(name) for name in reserved}
    prefixes = tuple(name[:-1] for name in names if name.endswith(b"*"))
    folders: dict[bytes, set[bytes]] = {}
    for path in paths:
        while path:
            folder, _, name = path.rpartition(b"/")
            folders.setdefault(folder, set()).add(name.lower())
            path = folder
    disguised = {
        folder
        for folder, names in folders.items()
        if b"head" in names and not names.isdisjoint((b"objects", b"refs", b"commondir"))
    }
    return {
        path
        for path in paths
        if path.startswith(prefixes)
        or path.partition(b"/")[0] in names
        or (path.rpartition(b"/")[2].lower() == b"head" and path.rpartition(b"/")[0] in disguised)
    }


def few_notes(notes: "list[str]") -> "list[str]":
    """Shorten notes such that each kind is there, and their number is told."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        text = note if len(note) <= LONGEST_NOTE else f"{note[:120]}...{note[-70:]}"
        kinds.setdefault(note.partition(": ")[0], []).append(text)
    most = len(notes) if len(notes) <= MOST_NOTES else max(1, MOST_NOTES // len(kinds) - 1)
    few: list[str] = []
    for kind, found in kinds.items():
        few += found[:most]
        few += [f"{kind[:LONGEST_NOTE]}: {len(found) - most} more"] if len(found) > most else []
    rest = [f"{len(few) - MOST_NOTES + 1} more notes"] if len(few) > MOST_NOTES else []
    return [*few[: MOST_NOTES - len(rest)], *rest]


def below(path: bytes, folders: "set[bytes]") -> bool:
    """Return whether a file lies in one of some directories, however deep."""
    while path:
        path = path.rpartition(b"/")[0]
        if path and path in folders:
            return True
    return False


def main(workspace: str, store: str, git_dir: str, objects: str, out: str, *rest: str) -> None:
    """Tidy, commit, pack.

    With a commit as the last argument, the files alone are brought home, on top of that commit.
    """
    written, base, branch, message, *onto = rest
    harvest = Harvest(workspace, store, git_dir, objects, out, base)
    harvest.tidy(written)
    harvest.tidy_store()
    harvest.keep_submodules()
    if onto:
        harvest.finish(harvest.bring_files(base, onto[0], message))
    else:
        harvest.finish(harvest.bring_all(base, branch, message))


if __name__ == "__main__":
    main(*sys.argv[1:])
