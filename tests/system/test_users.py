"""Two ordinary users and root in one repository: every command, in every order."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import docker
import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.labels import REPOSITORY
from orchestrator.worker.workspace.layout import OBJECTS
from tests.support.command_names import commands
from tests.support.daemon import ours
from tests.support.live import eventually
from tests.support.runs import shell_run
from tests.support.temptations import ran
from tests.support.users import UIDS, Said, World, world

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")


class Row(NamedTuple):
    """A command: its words, the exit code for a finished run of the caller, and one of another."""

    words: str
    code: int
    named: str | None = None
    """Words that name another user's run; None for a command that names no run."""


SOCKET = Path("/var/run/docker.sock")
SHELL = "--agent-cli shell --network none --workers 1 --quiet"
TABLE: dict[str, Row] = {
    "ls": Row("ls --all", 0),
    "watch": Row("watch", 0, "watch {run}"),
    "wait": Row("wait", 0, "wait {run}"),
    "logs": Row("logs", 0, "logs --run {run}"),
    "events": Row("events", 0, "events --run {run}"),
    "report": Row("report", 0, "report {run}"),
    "network log": Row("network log", 0, "network log --run {run}"),
    "network sets": Row("network sets", 0),
    "diff": Row("diff", 0, "diff {run}"),
    "conflicts": Row("conflicts", 0, "conflicts {run}"),
    "compare": Row("compare", 3, "compare {run}"),
    "judge": Row("judge --check true", 2, "judge {run} --check true"),
    "pick": Row("pick {number} --dry-run", 0, "pick {run} {number} --dry-run"),
    "pr": Row("pr {number} --dry-run", 3, "pr {run} 1 --dry-run"),
    "exec": Row("exec {number} true", 3, "exec --run {run} 1 true"),
    "shell": Row("shell {number}", 3),
    "stop": Row("stop {number}", 3, "stop --run {run} --all"),
    "ui": Row("ui --export {scratch}/a", 0),
    "mcp": Row("mcp", 0),
    "config show": Row("config show", 0),
    "config schema": Row("config schema", 0),
    "config validate": Row("config validate", 3),
    "config allow": Row("config allow", 3),
    "completion": Row("completion bash", 0),
    "spec graph": Row("spec graph {scratch}/flow.yaml", 0),
    "spec schema": Row("spec schema", 0),
    "spec validate": Row("spec validate {scratch}/flow.yaml", 0),
    "image build": Row("image build --help", 0),
    "image ls": Row("image ls --help", 0),
    "image save": Row("image save --help", 0),
    "image load": Row("image load --help", 0),
    "image push": Row("image push --help", 0),
    "image sbom": Row("image sbom --help", 0),
    "sandbox ls": Row("sandbox ls", 0),
    "sandbox run": Row("sandbox run -- true", 0),
    "sandbox batch": Row("sandbox batch --help", 0),
    "sandbox create": Row("sandbox create --help", 0),
    "sandbox exec": Row("sandbox exec --help", 0),
    "sandbox cp": Row("sandbox cp --help", 0),
    "sandbox extend": Row("sandbox extend --help", 0),
    "sandbox pause": Row("sandbox pause --help", 0),
    "sandbox resume": Row("sandbox resume --help", 0),
    "sandbox snapshot": Row("sandbox snapshot --help", 0),
    "sandbox rm": Row("sandbox rm --help", 0),
    "kubernetes manifest": Row("kubernetes manifest", 0),
    "setup": Row("setup --help", 0),
    "uninstall": Row("uninstall", 3),
    "doctor": Row("doctor", 3),
    "init": Row("init --yes --no-services", 0),
    "cache ls": Row("cache ls", 0),
    "cache warm": Row("cache warm", 3),
    "cache clear": Row("cache clear", 0),
    "resume": Row("resume", 0, "resume {run}"),
    "retry": Row("retry {number}", 0, "retry --run {run} 1"),
    "continue": Row("continue {number} -m true", 0, "continue --run {run} 1 -m true"),
    "run-one": Row("run-one true --agent-cli shell --network none", 0),
    "parallel": Row(f"parallel true {SHELL}", 0),
    "spec run": Row(f"spec run {{scratch}}/flow.yaml {SHELL}", 0),
    "run": Row(f"run {{scratch}}/flow.yaml {SHELL}", 0),
    "eval": Row("eval true -n 2 --check true --agent-cli shell --network none", 1),
    "merge": Row("merge {number}", 0, "merge {run}"),
    "gc": Row("gc --older-than 0s", 0),
    "parallel-cleanup": Row("parallel-cleanup", 0, "parallel-cleanup --run {run}"),
    "restore": Row("restore", 0, "restore --run {run}"),
}
"""Every command. It runs in this order for one world: those that remove runs are the last."""


def test_every_command_has_a_row() -> None:
    assert {*commands()} == {*TABLE}


CASES = [
    f"{layout}-{owner}-{caller}-{state}"
    for layout in ("shared", "private", "closed")
    for owner, caller in permutations(UIDS, 2)
    # Without the group, only the repository's owner and root can work in it.
    if layout == "shared" or "ben" not in (owner, caller)
    for state in ("live", "finished", "died")
]


@pytest.mark.variants("shared-ann-ben-live")
@pytest.mark.parametrize("case", CASES)
def test_the_run_of_another_user_is_left_alone_and_in_nobodys_way(case: str) -> None:
    layout, owner, caller, state = case.split("-")
    with world(layout) as here:
        theirs = here.start(owner, state)
        mine = here.start(caller, "finished")
        before = kept(here, theirs)
        for name, row in TABLE.items():
            said = use(here, caller, row.words, mine)
            assert said.code == row.code, (name, said)
            assert ran(here.record) == [], name
            if caller == "root":
                continue
            if name == "ls":
                assert f"{theirs}  run of {here.name(owner)}, not readable" in said.out
            if name == "parallel-cleanup":
                assert f"{theirs} of {here.name(owner)}" in said.err
            if row.named is not None:
                said = use(here, caller, row.named, theirs)
                assert said.code == 3, (name, said)
                assert here.name(owner) in said.err, (name, said)
        if caller == "root":
            assert files_of_root(here, theirs) == []
        else:
            assert kept(here, theirs) == before
        check_owner(here, owner, theirs, state, is_root=caller == "root")


def use(here: World, user: str, words: str, run: str) -> Said:
    """Run a command of the table, which may fail but not by a bug."""
    number = 1 if not run else here.number(run)
    given = {"run": run, "number": number, "scratch": here.scratch(user)}
    said = here.run(user, *(word.format(**given) for word in words.split()))
    assert "internal error" not in said.err, (words, said)
    return said


def kept(here: World, run: str) -> tuple[str, ...]:
    """Return what nobody but its owner may change of a run."""
    place = here.repo / ".git/orchestrator/runs" / run
    number = here.number(run)
    shown = here.repo / f".architect-parallel-{number}"
    return (
        (place / "run.json").read_text(),
        *sorted(str(path) for path in place.iterdir() if not path.name.endswith(".new")),
        *sorted(str(path) for path in shown.iterdir()),
        (here.repo / f".git/refs/heads/architect/parallel-{number}").read_text(),
    )


def files_of_root(here: World, run: str) -> list[str]:
    """Return what belongs to root of a checkout, its git directory, and the worktree of a run.

    Root's are the worktrees of root's runs, and files in the state directory.
    """
    shown = f".architect-parallel-{here.number(run)}"
    owners = {path: path.lstat().st_uid for path in here.repo.rglob("*")}
    places = [path.relative_to(here.repo) for path, owner in owners.items() if owner == 0]
    return [
        str(place)
        for place in places
        if place.parts[0] == shown or not place.parts[0].startswith(".architect-parallel-")
        if place.parts[:2] != (".git", "orchestrator")
    ]


def check_owner(here: World, owner: str, run: str, state: str, *, is_root: bool) -> None:
    """Check that the owner of a run can go on as if nobody else had worked in the repository."""
    if state == "live":
        assert use(here, owner, "stop --run {run} --all", run).code == 0
        assert use(here, owner, "wait {run}", run).code in (0, 1)
    if not is_root:
        for words in ("logs --run {run}", "diff {run}", "report {run}"):
            assert use(here, owner, words, run).code == 0, words
    assert use(here, owner, f"parallel true {SHELL}", run).code == 0
    assert use(here, owner, "merge", run).code in (0, 3)
    said = use(here, owner, "parallel-cleanup", run)
    assert said.code == 0, said


@pytest.mark.extra
def test_a_busy_repository_is_busy_with_the_run_of_another_user() -> None:
    words = f"parallel true {SHELL} --when-busy leave".replace(" --quiet", "")
    with world("shared") as here:
        theirs = here.start("ann", "live")
        said = here.run("ben", *words.split())
        assert (said.code, theirs in said.err, here.name("ann") in said.err) == (0, True, True)
        assert here.run("ann", "stop", "--all").code == 0
        assert here.run("ann", "wait").code == 1
        said = here.run("ben", *words.split())
        assert "nothing was started" not in said.err
        assert len(here.run_ids()) == 2


@pytest.mark.docker
@pytest.mark.extra
def test_containers_of_another_user_run_on(client: docker.APIClient) -> None:
    with world("shared", socket_group=SOCKET.stat().st_gid) as here, removed(here.repo):
        theirs = here.start("ann", "live")
        running = ours(client, here.repo)
        assert running
        mine = here.start("ben", "finished")
        said = use(here, "ben", "ls --all", mine)
        assert f"{theirs}  run of {here.name('ann')}, not readable, running" in said.out
        for words in (
            "stop --run {run} --all", "exec --run {run} {number} true", "logs --run {run}",
            "parallel-cleanup --run {run}",
        ):  # fmt: skip
            said = use(here, "ben", words, theirs)
            assert (said.code, here.name("ann") in said.err) == (3, True), (words, said)
        for words in ("logs --run {run}", "gc --older-than 0s", "parallel-cleanup --run {run}"):
            assert use(here, "ben", words, mine).code == 0, words
        assert not (here.repo / f".architect-parallel-{here.number(mine)}").exists()
        assert ours(client, here.repo) == running
        said = use(here, "ann", "exec --run {run} {number} cat new.txt", theirs)
        assert (said.code, said.out) == (0, "new\n")
        check_owner(here, "ann", theirs, "live", is_root=False)
        assert ours(client, here.repo) == []


# Takes a lease on every pack, which an owner of the files may who only reads them.
LEASES = """python3 -c '
import fcntl, os, pathlib, sys, time
for path in pathlib.Path("%s").rglob("*.pack"):
    try:
        fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
        print("taken")
    except PermissionError:
        print("refused")
sys.stdout.flush()
time.sleep(300)'"""


@pytest.mark.docker
@pytest.mark.usefixtures("client")
def test_git_of_an_ordinary_user_does_not_wait_for_a_worker() -> None:
    with world("private", socket_group=SOCKET.stat().st_gid) as here, removed(here.repo):

        def by_git(*words: str) -> int:
            # The kernel takes a lease away after 45 seconds.
            call = ["git", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false", *words]
            return subprocess.run(call, check=False, timeout=20).returncode

        assert here.wait(here.fork("ann", lambda: by_git("repack", "-adq"))) == 0
        (pack,) = (here.repo / ".git/objects/pack").glob("*.pack")
        task = LEASES % OBJECTS
        run = here.fork("ann", lambda: len(shell_run(here.repo, DockerEngine(), task).results))
        logs = here.repo / ".git/orchestrator/runs"
        eventually(lambda: any(log.read_text() for log in logs.glob("*/worker-1/stdout.log")))
        (log,) = logs.glob("*/worker-1/stdout.log")
        assert (log.read_text(), pack.stat().st_nlink > 1) == ("refused\n", True)
        assert here.wait(here.fork("ann", lambda: by_git("log", "--", "a.txt"))) == 0
        assert here.run("ann", "stop", "--all").code == 0
        assert here.wait(run) == 1


@contextmanager
def removed(repo: Path) -> Iterator[None]:
    """Remove what is left of a repository's runs in the Docker daemon."""
    try:
        yield
    finally:
        engine = DockerEngine()
        for leftover in engine.leftovers({REPOSITORY: str(repo / ".git")}):
            engine.remove(leftover)
        engine.close()
