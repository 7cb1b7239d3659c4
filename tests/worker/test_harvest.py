"""Tests that a worker's files are harvested, whatever its tree and store contain."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import EngineError
from orchestrator.base.files.disk_usage import DiskUse
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.base.text.redact import Redactor
from orchestrator.engine.interface.protocol import ExitStatus, LogChunk
from orchestrator.engine.places.host_place import HostPlace
from orchestrator.engine.places.place import GIT, TREE
from orchestrator.repository.incoming.packed_work import HarvestRefusedError
from orchestrator.worker.steps import pack as packing
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run, show

# Variables lead the worker's git to its store; a nested repository needs git without them.
ALONE = "env -u GIT_DIR -u GIT_WORK_TREE -u GIT_ALTERNATE_OBJECT_DIRECTORIES "
KEPT = "; echo kept > kept.txt"


@pytest.fixture
def home_from(repo: Path, local_engine: LocalEngine):
    def run(task: str) -> WorkerResult:
        (worker,) = shell_run(repo, local_engine, task).results
        assert worker.status is Status.SUCCESS, worker.message
        git(repo, "fsck", "--strict", "--no-dangling")
        return worker

    return run


def test_commits_of_the_worker_are_kept(home_from, repo: Path) -> None:
    worker = home_from(
        "for n in 1 2; do echo $n > $n.txt; git add -A; git commit -qm c$n; done" + KEPT
    )
    log = git(repo, "log", "--format=%s", worker.branch).splitlines()
    assert log[:4] == ["architect: uncommitted work of worker 1", "c2", "c1", "second"]
    assert worker.message is None


def test_branch_that_the_user_moved_is_not_changed(repo: Path, local_engine: LocalEngine) -> None:
    other = git(repo, "rev-parse", "HEAD~1")
    moves = f"env -C {repo} {ALONE[4:]}git update-ref refs/heads/architect/parallel-1 {other}"
    (worker,) = shell_run(repo, local_engine, f"echo work > work.txt; {moves}").results
    assert (worker.status, worker.reason) == (Status.FAILED, Reason.HARVEST_REFUSED)
    assert "all files of the worker are kept in" in (worker.message or "")
    assert git(repo, "rev-parse", worker.branch) == other


@pytest.mark.parametrize(
    "task",
    [
        "git checkout -q --detach; git commit -q --allow-empty -m mine",
        "git checkout -q -b other; git commit -q --allow-empty -m mine",
        "git commit -q --allow-empty -m mine; git pack-refs --all",
        "git commit -q --allow-empty -m mine; git gc -q --prune=now",
        "git commit -q --allow-empty -m mine; git checkout -q --detach HEAD~1",
    ],
    ids=["detached", "another branch", "packed refs", "gc", "moved away"],
)
def test_last_commit_is_found_wherever_head_is(home_from, repo: Path, task: str) -> None:
    worker = home_from(task + KEPT)
    assert show(repo, f"{worker.branch}:kept.txt") == "kept"
    assert git(repo, "log", "-1", "--format=%s", f"{worker.branch}~1") == "mine"


@pytest.mark.parametrize(
    "task",
    [
        "git commit -q --amend -m rewritten",
        "git update-ref HEAD $(git commit-tree -m root HEAD^{tree})",
        'rm "$GIT_DIR/HEAD"; rm -rf "$GIT_DIR/refs"',
        'rm "$GIT_DIR/HEAD"; rm -rf "$GIT_DIR/refs"; mkdir "$GIT_DIR/HEAD"',
        'rm "$GIT_DIR/HEAD"; ln -s /etc/hostname "$GIT_DIR/HEAD"; rm -rf "$GIT_DIR/refs"',
        'rm "$GIT_DIR/HEAD"; mkfifo "$GIT_DIR/HEAD"; rm -rf "$GIT_DIR/refs"',
        'rm -rf "$GIT_DIR/refs"; echo "ref: refs/heads/../../../x" > "$GIT_DIR/HEAD"',
        'echo "ref: $(git symbolic-ref HEAD)" > "$GIT_DIR/$(git symbolic-ref HEAD)"',
        'rm -rf "$GIT_DIR/refs"; echo 1111111111111111111111111111111111111111 > "$GIT_DIR/HEAD"',
    ],
    ids=[
        "amended",
        "new root",
        "no refs",
        "a directory",
        "a link",
        "a FIFO",
        "a way out",
        "a loop",
        "nothing there",
    ],
)
def test_history_without_the_base_is_reduced_to_the_files(home_from, repo: Path, task: str) -> None:
    base = git(repo, "rev-parse", "HEAD")
    worker = home_from(task + KEPT)
    assert git(repo, "rev-parse", f"{worker.branch}~1") == base
    assert worker.files_modified == ["kept.txt"]
    assert "the branch gets only the worker's files" in (worker.message or "")


@pytest.mark.parametrize(("more", "files"), [(KEPT, ["kept.txt"]), ("", [])])
def test_head_that_points_at_a_tag_is_handled(
    home_from, repo: Path, more: str, files: list[str]
) -> None:
    worker = home_from('git tag -am x v1; t=$(git rev-parse v1); echo $t > "$GIT_DIR/HEAD"' + more)
    assert worker.files_modified == files
    assert git(repo, "merge-base", "HEAD", worker.branch) == git(repo, "rev-parse", "HEAD")


def test_head_that_points_at_a_tag_of_a_new_commit_is_handled(home_from, repo: Path) -> None:
    worker = home_from(
        "git checkout -q --detach; git commit -q --allow-empty -m mine; git tag -am x v1; "
        't=$(git rev-parse v1); echo $t > "$GIT_DIR/HEAD"' + KEPT
    )
    assert worker.files_modified == ["kept.txt"]
    (kept,) = worker.kept_refs
    assert git(repo, "log", "-2", "--format=%s", kept).splitlines() == ["architect: a tag", "mine"]


def test_incomplete_history_is_left_out(home_from, repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    hole = "rm \"$GIT_DIR/objects/$(git rev-parse HEAD:lost | sed 's,..,&/,')\"; rm lost"
    worker = home_from(f"echo x > lost; git add lost; git commit -qm lost; {hole}" + KEPT)
    assert worker.files_modified == ["kept.txt"]
    assert git(repo, "rev-parse", f"{worker.branch}~1") == base


def test_too_deep_directory_is_left_out_alone(home_from) -> None:
    name = "d" * 200
    deep = f"for n in $(seq 30); do mkdir {name}; cd {name}; done; echo x > file"
    worker = home_from(f"echo kept > kept.txt; {deep}")
    assert "kept.txt" in worker.files_modified
    assert "a directory was left out (File name too long)" in (worker.message or "")


def test_alternates_of_a_store_are_ignored(home_from, repo: Path) -> None:
    """An alternates file points at the user's store, to get objects that were not given."""
    base = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-qb", "private")
    git(repo, "commit", "-q", "--allow-empty", "-m", "private")
    private = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-q", "main")
    lead = f'echo {repo}/.git/objects > "$GIT_DIR/objects/info/alternates"'
    worker = home_from(f'{lead}; echo {private} > "$GIT_DIR/HEAD"' + KEPT)
    assert worker.files_modified == ["kept.txt"]
    assert git(repo, "rev-parse", f"{worker.branch}~1") == base


def test_broken_index_loses_no_files(home_from) -> None:
    worker = home_from('echo garbage > "$GIT_DIR/index"; touch "$GIT_DIR/index.lock"' + KEPT)
    assert worker.files_modified == ["kept.txt"]


def test_nested_repository_is_harvested_as_files(home_from, repo: Path) -> None:
    worker = home_from(f"{ALONE} git init -q sub; echo x > sub/x; mkdir deep; touch deep/.git")
    assert "sub/x" in worker.files_modified
    assert not [path for path in worker.files_modified if "/.git" in path]
    assert "nested repository" in (worker.message or "")
    assert "160000" not in git(repo, "ls-tree", "-r", worker.branch)


def test_special_files_are_left_out(home_from) -> None:
    worker = home_from("mkfifo pipe; ln -s /etc/passwd link; ln -s loop loop" + KEPT)
    assert worker.files_modified == ["kept.txt", "link", "loop"]
    assert "a special file was removed: pipe" in (worker.message or "")


def test_notes_of_one_kind_are_bounded(home_from) -> None:
    worker = home_from("mkfifo $(seq 4000)" + KEPT)
    assert worker.files_modified == ["kept.txt"]
    assert 1 <= (worker.message or "").count("a special file was removed") <= 20


def test_symbolic_link_is_harvested_as_a_link(home_from, repo: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("sesame")
    worker = home_from(f"ln -s {tmp_path} out; ln -sf {tmp_path}/secret a.txt" + KEPT)
    assert show(repo, f"{worker.branch}:out") == str(tmp_path)
    assert "sesame" not in git(repo, "log", "-p", worker.branch)


def test_files_without_permissions_are_harvested(home_from) -> None:
    worker = home_from("mkdir -p shut/in; echo x > shut/in/x; chmod 0 shut/in/x shut/in shut")
    assert worker.files_modified == ["shut/in/x"]


def test_too_large_file_is_left_out(home_from) -> None:
    worker = home_from("truncate -s 101M 'a [big] *file' 'k*'" + KEPT)
    assert worker.files_modified == ["kept.txt"]
    assert "a file over 100 MiB was left out: a [big] *file" in (worker.message or "")


def test_special_file_names_are_harvested(home_from) -> None:
    odd = ["-rf", ":(exclude)x", "a*b", "back\\slash", "new\nline", "é", "--help", '"quoted"']
    quoted = " ".join("'" + name.replace("'", "'\\''") + "'" for name in odd)
    worker = home_from(f'for name in {quoted}; do echo x > "./$name"; done')
    assert sorted(worker.files_modified) == sorted(odd)


@pytest.mark.parametrize("name", [".GIT", "git~1", ".git."])
def test_name_that_git_refuses_is_left_out_alone(home_from, name: str) -> None:
    worker = home_from(f"mkdir a z; touch a/{name} a/more z/more" + KEPT)
    assert worker.files_modified == ["a/more", "kept.txt", "z/more"]
    assert "some files could not be added" in (worker.message or "")


def test_file_that_cannot_be_converted_is_kept_unconverted(home_from, repo: Path) -> None:
    attributes = "echo '*.txt working-tree-encoding=UTF-16LE' > .gitattributes"
    worker = home_from(f"{attributes}; printf odd > odd.txt" + KEPT)
    assert worker.files_modified == [".gitattributes", "kept.txt", "odd.txt"]
    assert show(repo, f"{worker.branch}:odd.txt") == "odd"
    assert "git added files without converting them" in (worker.message or "")


def test_automatic_maintenance_is_disabled_in_the_store(home_from, repo: Path) -> None:
    """Automatic maintenance would run in the background, and is useless in a store."""
    commit = "git commit -q --allow-empty -m"
    worker = home_from(
        f"""for n in 1 2; do {commit} $n; git repack -qd; done
        git config gc.autoPackLimit 1; git config gc.autoDetach false; {commit} last
        git gc --auto --quiet
        find "$GIT_DIR"/objects/pack -name '*.pack' | wc -l > packs"""
    )
    assert show(repo, f"{worker.branch}:packs").strip() == "2"


def test_file_name_that_is_not_utf8_is_harvested(home_from) -> None:
    worker = home_from("printf x > \"$(printf 'latin\\351')\"")
    assert worker.files_modified == ["latin\\xe9"]


def test_programs_of_the_workers_git_configuration_never_run(home_from, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    program = tmp_path / "program"
    worker = home_from(
        f"""printf '#!/bin/sh\\ntouch {mark}\\n' > {program}; chmod +x {program}
        mkdir -p "$GIT_DIR/hooks"; cp {program} "$GIT_DIR/hooks/post-index-change"
        cp {program} "$GIT_DIR/hooks/reference-transaction"
        for key in core.fsmonitor core.sshCommand filter.x.clean filter.x.smudge diff.external
        do git config $key {program}; done
        echo '* filter=x' > .gitattributes; rm -f {mark}"""
        + KEPT
    )
    assert worker.files_modified == [".gitattributes", "kept.txt"]
    assert program.exists()
    assert not mark.exists()


def test_users_name_is_written_as_one_line(home_from, repo: Path) -> None:
    git(repo, "config", "user.name", 'A "B" \\ C\n[core]\n\tfsmonitor = false')
    worker = home_from("git config user.name > name; ! git config core.fsmonitor")
    assert show(repo, f"{worker.branch}:name") == 'A "B" \\ C[core]\tfsmonitor = false'


def test_ignored_files_are_not_harvested(home_from) -> None:
    worker = home_from("echo '*.o' > .gitignore; echo x > x.o" + KEPT)
    assert worker.files_modified == [".gitignore", "kept.txt"]


def test_deletion_of_all_files_is_harvested(home_from, repo: Path) -> None:
    worker = home_from("rm -rf ./* .git")
    assert worker.files_modified == ["a.txt", "src/app.py"]
    assert git(repo, "ls-tree", "-r", worker.branch) == ""


def test_refused_work_that_does_not_fit_is_kept_in_part(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(_: object, part: str, into: Path, *, limit: int, partial: bool = False) -> int:  # noqa: ARG001
        if part in (TREE, GIT) and not partial:
            raise EngineError("there are more than 10 bytes", key="place.transfer")
        return 2 if part == TREE else 0

    monkeypatch.setattr(HostPlace, "take", take)
    other = git(repo, "rev-parse", "HEAD~1")
    moves = f"env -C {repo} {ALONE[4:]}git update-ref refs/heads/architect/parallel-1 {other}"
    (worker,) = shell_run(repo, local_engine, f"echo work > work.txt; {moves}").results
    assert (worker.status, worker.reason) == (Status.FAILED, Reason.HARVEST_REFUSED)
    assert "but for 2 that are not regular or do not fit" in (worker.message or "")


def test_packing_that_lacked_memory_is_refused_with_this_reason() -> None:
    class Ended:
        def wait(self, timeout: float) -> ExitStatus:  # noqa: ARG002
            return ExitStatus(exit_code=137, oom_killed=True)

    failure = packing._failure(Redactor(), Ended(), b"some output")  # type: ignore[arg-type]
    assert isinstance(failure, HarvestRefusedError)
    assert str(failure) == (
        "packing the worker's work failed: it needed more memory than its limit"
    )


class Endless:
    """A container whose output never ends, and the place it is in."""

    def __init__(self, *, silent: bool, stuck: bool, used: int) -> None:
        self._silent, self._stuck, self._used = silent, stuck, used
        self.over = threading.Event()
        self.killed = False

    def logs(self) -> Iterator[LogChunk]:
        while not self.over.wait(0.01):
            if not self._silent:
                yield LogChunk(stream="stdout", data=b"x" * 1000)

    def usage(self, *_: object, **__: object) -> DiskUse:
        if self._stuck:
            self.over.wait(100)
        return DiskUse(size=self._used, files=0, hidden=0)

    def kill(self, _: str) -> None:
        self.killed = True


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ({"silent": False, "stuck": False, "used": 0}, "took longer"),
        ({"silent": True, "stuck": False, "used": 0}, "took longer"),
        ({"silent": False, "stuck": False, "used": 200}, "the disk limit allows"),
        ({"silent": False, "stuck": True, "used": 0}, "does not end"),
    ],
    ids=["output", "silence", "too much", "measurement"],
)
@pytest.mark.timeout(60)
def test_packing_that_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any], why: str
) -> None:
    for name, seconds in (("HARVEST_TIMEOUT", 1.0), ("DEATH", 0.5), ("MEASURE", 0.05)):
        monkeypatch.setattr(packing, name, seconds)
    made = Endless(**kind)
    try:
        with pytest.raises(HarvestRefusedError, match=why):
            packing._wait_for_end(made, made, room=100)  # type: ignore[arg-type]
    finally:
        made.over.set()
    assert made.killed is not kind["stuck"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_packing_that_someone_ended_is_repeated(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A Docker daemon that is restarted sends SIGTERM to all containers."""
    programs = iter([f"import os, time; os.kill(os.getpid(), {number}); time.sleep(60)"])
    real = packing.bundle
    monkeypatch.setattr(packing, "bundle", lambda name: next(programs, None) or real(name))
    (worker,) = shell_run(repo, local_engine, "echo work > new").results
    assert (worker.status, worker.message) == (Status.SUCCESS, None)
    assert show(repo, f"{worker.branch}:new") == "work"
    assert next(programs, None) is None
