"""A worker that leaves its git in a random state; each content that it writes is new."""

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.assurance.fuzz.world import BRANCH, World

_FILES = ("a.txt", "run.sh", "src/app.py", "new.txt", "src/deep/new.py", "x.log", "dir.log/y")
_NAMES = ("side", "feature/one", "feature/two", "Side", "topic")


class Worker:
    """Runs git as a worker does, with its store and its checkout."""

    def __init__(self, world: World, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tree = world.store.copy
        self.world = world
        self.what: list[str] = []
        self._count = 0
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(world.root),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_DIR": str(world.store.git),
            "GIT_WORK_TREE": str(self.tree),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(world.origin.objects),
            "GIT_EDITOR": "true",
            "GIT_OPTIONAL_LOCKS": "0",
        }

    def work(self) -> None:
        """Take several random steps; like those of an agent, some of them fail."""
        (self.world.store.git / "info" / "exclude").write_text("*.log\n")
        (self.world.store.harvest / "info" / "exclude").write_text("*.log\n")
        for _ in range(self.rng.randrange(3, 16)):
            step = self.rng.choice(STEPS)
            self.what.append(step.__name__)
            step(self)

    def git(self, *arguments: str, stdin: str = "") -> str:
        """Run git and return its stdout; errors are ignored."""
        done = subprocess.run(
            ["git", *arguments], cwd=self.tree, env=self._env, input=stdin.encode(),
            capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        return done.stdout.decode(errors="replace").strip()

    def text(self) -> str:
        """Return a new line, always of the same length."""
        self._count += 1
        return f"content {self._count:06}\n"

    def file(self) -> Path:
        """Write new content to a random file."""
        path = self.tree / self.rng.choice(_FILES)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text())
        return path

    def content(self) -> set[str]:
        """Return the ids of all content in commits, in the index and in files that git includes."""
        found = set(
            self.git("hash-object", "--stdin-paths", stdin="\n".join(self._files())).split()
        )
        found |= {line.split()[1] for line in self.git("ls-files", "-s").splitlines()}
        for commit in self.commits():
            rows = self.git("ls-tree", "-r", commit).splitlines()
            found |= {row.split()[2] for row in rows}
        return found

    def commits(self) -> set[str]:
        """Return the ids of all commits, including those that no ref reaches."""
        listing = ("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")
        rows = (row.split() for row in self.git(*listing).splitlines())
        return {row[0] for row in rows if row[1] == "commit"}

    def damaged(self) -> set[str]:
        """Return the commits of whose history git removed objects.

        `git repack -ad` removes packed objects that no ref reaches, and keeps such loose ones.
        """
        count = ("rev-list", "--objects", "--count")
        return {commit for commit in self.commits() if not self.git(*count, commit)}

    def _files(self) -> Iterator[str]:
        known = ("ls-files", "--cached", "--others", "--exclude-from", "/dev/stdin")
        for name in sorted(set(self.git(*known, stdin="*.log\n").splitlines())):
            if (self.tree / name).is_file() and not (self.tree / name).is_symlink():
                yield name


def write(worker: Worker) -> None:
    worker.file()


def write_like_another(worker: Worker) -> None:
    """Change a file and keep its size and time, as `cp -p` may do."""
    one, other = worker.file(), worker.tree / "a.txt"
    if one != other and other.exists():
        info = other.stat()
        other.write_text(worker.text())
        os.utime(other, ns=(info.st_atime_ns, info.st_mtime_ns))


def delete(worker: Worker) -> None:
    (worker.tree / worker.rng.choice(_FILES)).unlink(missing_ok=True)


def commit(worker: Worker) -> None:
    worker.file()
    worker.git("add", "-A")
    worker.git("commit", "-qm", worker.text())


def amend(worker: Worker) -> None:
    worker.file()
    worker.git("commit", "-qa", "--amend", "-m", worker.text())


def stage(worker: Worker) -> None:
    path = worker.file()
    worker.git("add", worker.rng.choice(("-f", "-f", "-Nf")), str(path))
    if worker.rng.random() < 0.5:
        path.write_text(worker.text())
    elif worker.rng.random() < 0.3:
        path.unlink()


def stage_alone(worker: Worker) -> None:
    blob = worker.git("hash-object", "-w", "--stdin", stdin=worker.text())
    worker.git("update-index", "--add", "--cacheinfo", f"100644,{blob},nowhere.txt")


def flag(worker: Worker) -> None:
    kind = worker.rng.choice(("assume-unchanged", "skip-worktree"))
    worker.git("update-index", f"--{kind}", "a.txt", "run.sh")
    (worker.tree / "a.txt").write_text(worker.text())


def branch(worker: Worker) -> None:
    worker.git("checkout", "-q", "-b", worker.rng.choice(_NAMES))


def switch(worker: Worker) -> None:
    worker.git("checkout", "-q", worker.rng.choice((*_NAMES, BRANCH, BRANCH, "-")))


def orphan(worker: Worker) -> None:
    worker.git("checkout", "-q", "--orphan", f"root-{worker.rng.randrange(100)}")


def detach(worker: Worker) -> None:
    back = worker.rng.choice(("HEAD", "HEAD~1", "HEAD~2", BRANCH))
    worker.git("checkout", "-q", "--detach", back)


def reset(worker: Worker) -> None:
    how = worker.rng.choice(("--hard", "--soft", "--mixed"))
    worker.git("reset", "-q", how, worker.rng.choice(("HEAD", "HEAD~1", "ORIG_HEAD")))


def stash(worker: Worker) -> None:
    worker.file()
    worker.git("stash", "push", "-q", worker.rng.choice(("-u", "-k", "-q")))


def unstash(worker: Worker) -> None:
    worker.git("stash", worker.rng.choice(("pop", "drop", "apply")), "-q")


def tag(worker: Worker) -> None:
    name = f"v{worker.rng.randrange(1000)}"
    if worker.rng.random() < 0.5:
        worker.git("tag", name)
    else:
        worker.git("tag", "-a", "-m", worker.text(), name)


def merge(worker: Worker) -> None:
    worker.git("merge", "-q", "--no-edit", worker.rng.choice(_NAMES))


def rebase(worker: Worker) -> None:
    worker.git("rebase", "-q", "--autostash", worker.rng.choice((*_NAMES, "HEAD~1")))


def pick(worker: Worker) -> None:
    worker.git(worker.rng.choice(("cherry-pick", "revert")), worker.rng.choice(_NAMES))


def bisect(worker: Worker) -> None:
    worker.git("bisect", "start", "HEAD", "HEAD~2")


def settle(worker: Worker) -> None:
    for command in ("merge", "rebase", "cherry-pick"):
        worker.git(command, worker.rng.choice(("--abort", "--continue", "--quit")))


def forget(worker: Worker) -> None:
    worker.git("branch", "-D", worker.rng.choice(_NAMES))
    worker.git("reflog", "expire", "--expire=all", "--all")


def tidy(worker: Worker) -> None:
    command = worker.rng.choice((("gc", "-q"), ("pack-refs", "--all"), ("repack", "-adq")))
    worker.git(*command)


def note(worker: Worker) -> None:
    worker.git("notes", "add", "-f", "-m", worker.text(), "HEAD")


def second_worktree(worker: Worker) -> None:
    place = worker.world.root / f"second-{worker.rng.randrange(10**6)}"
    worker.git("worktree", "add", "-q", "--detach", str(place))
    worker.git("-C", str(place), "--git-dir", str(place / ".git"), "--work-tree", str(place),
               "commit", "-q", "--allow-empty", "-m", worker.text())  # fmt: skip


def split(worker: Worker) -> None:
    worker.git("update-index", "--split-index", "--untracked-cache")


STEPS: tuple[Callable[[Worker], None], ...] = (
    write, write, write_like_another, delete, commit, commit, commit, amend, stage, stage,
    stage_alone, flag, branch, branch, switch, switch, orphan, detach, detach, reset, stash, stash,
    unstash, tag, merge, rebase, pick, bisect, settle, forget, tidy, note, second_worktree, split,
)  # fmt: skip
