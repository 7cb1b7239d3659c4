"""A repository with runs into which faults are injected, and checks of its state afterwards."""

import io
import json
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import docker

from orchestrator.engine.interface.labels import REPOSITORY
from orchestrator.faces.cli.app import run
from orchestrator.state.run_directory import RunDirectory, all_runs
from tests.assurance.faults.counter import Tally
from tests.support.cli import Completed, orchestrator
from tests.support.repository import fingerprint, git, make_repository

ROOT = Path(__file__).resolve().parents[3]
GREETING = "hello from a variable"
SECRET = "swordfish-8c1f2b"
KEY = "sk-of-the-caller-51d0"
_PRIVATE = ("--env", f"GREETING={GREETING}", "--secret", "FAULTS_SECRET")
_TASK = """bash -eu <<'T'
say() {
  exec 3<>/dev/tcp/host.docker.internal/PORT
  echo "$1 RUN/$ORCHESTRATOR_WORKER_ID" >&3
  read -r -u 3 counted; exec 3>&-
}
say begin
if [ -n "${GREETING:-}" ]; then test "$(rev /run/secrets/FAULTS_SECRET)" = TERCES; fi
echo found > "$ORCHESTRATOR_FINDINGS"; echo made > "$ORCHESTRATOR_ARTIFACTS/made"
echo committed > committed.txt; git add -A; git commit -qm work
git commit -q --allow-empty -m beside; git branch side; git reset -q --soft HEAD~1
mkdir new; echo "${GREETING:-DEFAULT}" > new/rest.txt
echo more >> a.txt; rm src/app.py; ln -s a.txt link
for i in $(seq MANY); do echo $i > new/many-$i; done
say wrote
echo begun
sleep NAP
echo late > late.txt
say end
T
"""
_PLAIN_TASK = """bash -eu <<'T'
say() {
  exec 3<>/dev/tcp/host.docker.internal/PORT
  echo "$1 RUN/$ORCHESTRATOR_WORKER_ID" >&3
  read -r -u 3 counted; exec 3>&-
}
say begin
mkdir new; echo "DEFAULT" > new/rest.txt; echo more >> a.txt
say wrote
echo begun
sleep NAP
echo late > late.txt
say end
T
"""
STAGES = ("setup", "teardown", "check")
_EARLY = {
    "committed.txt": "committed",
    "new/rest.txt": GREETING,
    "link": "a.txt",
    "a.txt": "a\nmore",
}
_BASE = {"a.txt", "src/app.py"}


class World:
    """A repository, and the reports of its tasks."""

    template = _TASK
    early: Mapping[str, str] = _EARLY
    """Files that a task has written when it says so, with their content."""
    deleted = frozenset({"src/app.py"})
    """Files of the base that a task deletes."""

    def __init__(self, root: Path, counts: Tally, *, files: int = 0, many: int = 0) -> None:
        self.repo = make_repository(root / "repo")
        self.counts = counts
        self._name = root.name
        self._many = many
        self._base = _BASE
        if files:
            self._fill(files)
        self._before = self._fingerprint()
        self._last: Completed | None = None
        """The last command, shown where something is left behind."""
        self._visible: list[str] = []
        """What the engine had when the last command began."""

    def _fingerprint(self) -> dict[str, str]:
        """Return the state of the user's files and refs, without backups."""
        found = fingerprint(self.repo)
        refs = found["refs"].splitlines()
        found["refs"] = "\n".join(ref for ref in refs if "refs/orchestrator/" not in ref)
        return found

    def _fill(self, files: int) -> None:
        (self.repo / "many").mkdir()
        for number in range(files):
            (self.repo / "many" / f"{number}").write_text(f"{number}\n")
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-qm", "many")
        self._base = _BASE | {f"many/{number}" for number in range(files)}

    def task(self, *, nap: float = 0.3) -> str:
        """Return a task that reports its begin and end, and writes all kinds of files."""
        told = {
            "PORT": self.counts.port, "RUN/": f"{self._name}/", "NAP": nap, "MANY": self._many,
            "DEFAULT": GREETING,
            # Reversed, because the secret itself would be redacted.
            "TERCES": SECRET[::-1],
        }  # fmt: skip
        text = self.template
        for name, value in told.items():
            text = text.replace(name, str(value))
        return text

    def parallel(
        self,
        *,
        workers: int = 2,
        nap: float = 0.3,
        private: bool = True,
        stages: bool = False,
        rest: Iterable[str] = (),
    ) -> list[str]:
        """Return the arguments of a run with one task for each worker."""
        if stages:
            stages_of = (word for name in STAGES for word in (f"--{name}", self._stage(name)))
            rest = (*rest, *stages_of, "--check", "true", "--check-network", "open")
        tasks = [word for _ in range(workers) for word in ("--task", self.task(nap=nap))]
        return [
            "parallel", "--agent-cli", "shell", *tasks, "--workers", str(workers),
            "--allow", f"host.docker.internal:{self.counts.port}", *(_PRIVATE if private else ()),
            "--timeout-per-worker", "120", "--grace", "1", "--json", "--quiet", *rest,
        ]  # fmt: skip

    def _stage(self, name: str) -> str:
        """Return a command that reports that it was run."""
        told = f"{name} {self._name}/$ORCHESTRATOR_WORKER_ID"
        say = f"exec 3<>/dev/tcp/host.docker.internal/{self.counts.port}; echo {told} >&3; read -u3"
        # Setup also runs before the checks, in a checkout that contains this committed file.
        return (
            f"bash -c '{say}'" if name != "setup" else f"test -e committed.txt || bash -c '{say}'"
        )

    def check_stages(self, *, once: bool) -> None:
        """Check that setup, teardown and check of each worker ran once or, if interrupted, twice.

        Args:
            once: Whether each ran only once for at least one worker.
        """
        for name in STAGES:
            said = sorted(self.said(name, number) for number in (1, 2))
            assert set(said) <= {1, 2}, (name, self.counts)
            assert said[0] == 1 or not once, (name, self.counts)

    def crash(self, point: str, arguments: list[str]) -> None:
        """Run a command that is killed at a point."""
        done = self.crashing(point, *arguments)
        said = f"{point} was not reached: {done.stdout}\n{done.stderr}"
        assert done.returncode == -signal.SIGKILL, said

    def interrupt(self, point: str, signals: Sequence[str], arguments: list[str]) -> int:
        """Run a command that gets signals at a point, and return its exit code."""
        return self.crashing(":".join([point, *signals]), *arguments).returncode

    def crashing(self, *arguments: str) -> Completed:
        """Run a command with a fault at a point, and wait for its end.

        The fault replaces functions before other modules import them, so a fork cannot be used.
        """
        return orchestrator(
            *arguments, cwd=self.repo, env=self.environ(), module="tests.assurance.faults.crash",
            fork=False,
        )  # fmt: skip

    def environ(self) -> Mapping[str, str]:
        """Return the variables of a caller who has the secret."""
        private = {"FAULTS_SECRET": SECRET, "OPENAI_API_KEY": KEY}
        return {**os.environ, "PYTHONPATH": str(ROOT), **private}

    def orchestrator(self, *arguments: str) -> Completed:
        """Run a command as a caller who does not have the secret."""
        self._visible = in_engine(self.repo)
        self._last = orchestrator(*arguments, cwd=self.repo, env={"PYTHONPATH": str(ROOT)})
        return self._last

    def said(self, word: str, number: int) -> int:
        """Return how often a worker's task reported a word."""
        return self.counts[f"{word} {self._name}/{number}"]

    @property
    def runs(self) -> list[RunDirectory]:
        """All runs of the repository."""
        return list(all_runs(self.repo / ".git" / "orchestrator"))

    def check_readable(self) -> Any:
        """Check in this process that the state of all runs can be read."""
        with chdir(self.repo), redirect_stdout(io.StringIO()) as said:
            assert run(["ls", "--json"]) == 0
        return json.loads(said.getvalue())

    def check_whole(self, results: Mapping[int, Mapping[str, Any]], *, workers: int = 2) -> None:
        """Check that every task ran once, and that its result, branch and worktree are right."""
        assert sorted(results) == list(range(1, workers + 1))
        for number, result in results.items():
            assert (result["status"], result["reason"]) == ("success", None), result
            assert (self.said("begin", number), self.said("end", number)) == (1, 1), self.counts
            ref = f"architect/parallel-{number}"
            assert result["commit"] == git(self.repo, "rev-parse", ref)
            self.check_files(ref, ended=True)
            self.check_beside(number, result)
            assert set(result["files_modified"]) == self._files(ended=True) ^ self._base | {"a.txt"}
            self._check_worktree(result["worktree_path"])

    def _check_worktree(self, path: str) -> None:
        if path:
            assert git(Path(path), "status", "--porcelain") == ""
            assert (Path(path) / "late.txt").read_text() == "late\n"
        else:
            assert list(self.repo.glob(".architect-parallel-*")) == []

    def check_beside(self, number: int, result: Mapping[str, Any]) -> None:
        """Check what a worker handed over beside its branch."""
        assert result["artifacts"] == ["made"]
        (beside,) = result["kept_refs"]
        assert beside.endswith(f"/{number}/heads/side")
        assert git(self.repo, "log", "-1", "--format=%s", beside) == "beside"
        assert (Path(result["log"]) / "findings.md").read_text() == "found\n"

    def _files(self, *, ended: bool) -> set[str]:
        written = {*self.early, *(f"new/many-{i}" for i in range(1, self._many + 1))}
        return (self._base | written | ({"late.txt"} if ended else set())) - self.deleted

    def check_files(self, ref: str, *, ended: bool, at_least: bool = False) -> None:
        """Check that a commit has the files of a task; `at_least` also accepts its last file."""
        found = set(git(self.repo, "ls-tree", "-r", "--name-only", ref).splitlines())
        wanted = self._files(ended=ended)
        assert found - ({"late.txt"} if at_least and not ended else set()) == wanted, found ^ wanted
        for path, text in self.early.items():
            assert git(self.repo, "show", f"{ref}:{path}") == text
        self.check_history(ref)

    def check_history(self, ref: str) -> None:
        """Check that the worker's own commit is the first one after the base."""
        assert git(self.repo, "log", "--format=%s", f"main..{ref}").splitlines()[-1] == "work"

    def check_result(
        self, number: int, result: Mapping[str, Any], *, may_fail: bool, lossy: bool
    ) -> None:
        """Check that a result is right, or an accepted failure of a worker with a fault."""
        assert self.said("begin", number) <= 1, self.counts
        if result["status"] == "success":
            assert (self.said("begin", number), self.said("end", number)) == (1, 1), self.counts
            self.check_files(f"architect/parallel-{number}", ended=True)
            return
        assert may_fail, result
        assert result["reason"] not in (None, "internal_error"), result
        if self.wrote(number) and not (lossy and "kept in" in result["message"]):
            ended = bool(self.said("end", number))
            try:
                self.check_files(f"architect/parallel-{number}", ended=ended, at_least=True)
            except AssertionError as error:
                raise AssertionError(result) from error

    def wrote(self, number: int) -> bool:
        """Return whether a worker's task reported that it wrote its files."""
        logs = (run.worker(number) / "stdout.log" for run in self.runs)
        return any(log.exists() and "begun" in log.read_text() for log in logs)

    def check_backup(self, number: int, *, lossy: bool) -> None:
        """Check that a backup has a worker's work after a cleanup."""
        if not self.wrote(number):
            return
        refs = git(self.repo, "for-each-ref", "--format=%(refname)", "refs/orchestrator/backup")
        mine = [ref for ref in refs.splitlines() if ref.endswith(f"/{number}")]
        if mine or not lossy:
            assert len(mine) == 1, (number, refs, self.counts)
            self.check_files(mine[0], ended=bool(self.said("end", number)), at_least=True)

    def check_nothing_left(self) -> None:
        """Check that the repository is intact and that no process or container is left."""
        assert git(self.repo, "fsck", "--strict", "--no-dangling") == ""
        assert self._fingerprint() == self._before
        left = in_engine(self.repo)
        assert set(left).isdisjoint(self._visible), (left, self._last)
        if left:
            # The engine completed a request of the killed client after the cleanup.
            self.orchestrator("parallel-cleanup")
            assert in_engine(self.repo) == [], self._last
        assert [run.run_id for run in self.runs if run.is_live()] == []
        ids = [run.run_id for run in self.runs]
        left = [path for run in ids for path in Path("/dev/shm").glob(f"orchestrator-{run}*")]
        assert left == []
        _eventually_none(lambda: processes(self.repo))
        self.check_readable()

    def check_removed(self) -> None:
        """Check that a cleanup left no worktree, branch or scratch directory."""
        assert list(self.repo.glob(".architect-parallel-*")) == []
        assert git(self.repo, "for-each-ref", "refs/heads/architect") == ""
        state = self.repo / ".git" / "orchestrator"
        assert scratch(state) == []


class PlainWorld(World):
    """A repository whose tasks write only ordinary files, and commit nothing."""

    template = _PLAIN_TASK
    early: Mapping[str, str] = {"new/rest.txt": GREETING, "a.txt": "a\nmore"}
    deleted = frozenset[str]()

    def check_beside(self, number: int, result: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Check that a worker handed over nothing beside its branch."""
        assert (result["artifacts"], result["kept_refs"]) == ([], [])

    def check_history(self, ref: str) -> None:
        """Check that the work is one commit."""
        assert git(self.repo, "rev-list", "--count", f"main..{ref}") == "1"


def scratch(state: Path) -> list[str]:
    """List what is left in a run's state besides records, logs and handed-over files."""
    kept = {"lock", "memory", "overlay", "owners", "probes", "runs", "checkouts", "packs"}
    found = [path.name for path in state.glob("*") if path.name not in kept]
    places = (*state.glob("checkouts/*"), *state.glob("packs/*"))
    found += [path.name for path in places if path.name != "lock"]
    inside = (p for p in state.glob("runs/*/*/*") if p.is_dir() and p.name != "artifacts")
    records = (p for p in state.glob("runs/*/*") if p.is_dir() and p.name != "broker")
    beside = (p for p in records if not p.name[-1].isdigit())
    odd = (path for path in state.glob("runs/*/*half-made*"))
    return sorted({*found, *(str(p.relative_to(state)) for p in (*inside, *beside, *odd))})


def in_engine(repo: Path) -> list[str]:
    """List the containers, networks and volumes of a repository's runs."""
    client = docker.APIClient(version="auto", **docker.utils.kwargs_from_env())
    filters = {"label": f"{REPOSITORY}={repo / '.git'}"}
    try:
        return [
            *(c["Names"][0] for c in client.containers(all=True, filters=filters)),
            *(n["Name"] for n in client.networks(filters=filters)),
            *(v["Name"] for v in client.volumes(filters=filters)["Volumes"] or []),
        ]
    finally:
        client.close()


def running(repo: Path) -> list[str]:
    """List the running containers of a repository's runs."""
    client = docker.APIClient(version="auto", **docker.utils.kwargs_from_env())
    filters = {"label": f"{REPOSITORY}={repo / '.git'}"}
    try:
        return [found["Names"][0] for found in client.containers(filters=filters)]
    finally:
        client.close()


def processes(repo: Path) -> list[str]:
    """List the processes that work in a repository, and zombie children of this process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environ = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        inside = f"={repo}/".encode() in environ or f"={repo}\0".encode() in environ
        if inside and int(entry.name) != os.getpid():
            found.append((entry / "cmdline").read_text().replace("\0", " "))
        if state[:2] == ["Z", str(os.getpid())]:
            found.append(f"zombie {entry.name}")
    return found


def _eventually_none(look: Any) -> None:
    deadline = time.monotonic() + 60
    while found := look():
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
