"""Whatever a worker leaves in its tree and store, its files come home. Whole runs, no container."""

from pathlib import Path

import pytest

from orchestrator.results import Status, WorkerResult
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run, show

# A worker's git finds its store by variables here; a nested repository must not.
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


def test_commits_of_its_own_are_kept_below(home_from, repo: Path) -> None:
    worker = home_from(
        "for n in 1 2; do echo $n > $n.txt; git add -A; git commit -qm c$n; done" + KEPT
    )
    log = git(repo, "log", "--format=%s", worker.branch).splitlines()
    assert log[:4] == ["architect: uncommitted work of worker 1", "c2", "c1", "second"]
    assert worker.message is None


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
def test_its_last_commit_is_found_wherever_it_is(home_from, repo: Path, task: str) -> None:
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
def test_history_that_is_not_on_the_base_leaves_the_files(home_from, repo: Path, task: str) -> None:
    base = git(repo, "rev-parse", "HEAD")
    worker = home_from(task + KEPT)
    assert git(repo, "rev-parse", f"{worker.branch}~1") == base
    assert worker.files_modified == ["kept.txt"]
    assert "its branch has only its files" in (worker.message or "")


@pytest.mark.parametrize(("more", "files"), [(KEPT, ["kept.txt"]), ("", [])])
def test_a_tag_is_no_last_commit(home_from, repo: Path, more: str, files: list[str]) -> None:
    worker = home_from('git tag -am x v1; t=$(git rev-parse v1); echo $t > "$GIT_DIR/HEAD"' + more)
    assert worker.files_modified == files
    assert git(repo, "merge-base", "HEAD", worker.branch) == git(repo, "rev-parse", "HEAD")


def test_history_with_a_hole_is_left_out(home_from, repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    hole = "rm \"$GIT_DIR/objects/$(git rev-parse HEAD:lost | sed 's,..,&/,')\"; rm lost"
    worker = home_from(f"echo x > lost; git add lost; git commit -qm lost; {hole}" + KEPT)
    assert worker.files_modified == ["kept.txt"]
    assert git(repo, "rev-parse", f"{worker.branch}~1") == base


def test_what_lies_too_deep_keeps_nothing_out(home_from) -> None:
    name = "d" * 200
    deep = f"for n in $(seq 30); do mkdir {name}; cd {name}; done; echo x > file"
    worker = home_from(f"echo kept > kept.txt; {deep}")
    assert "kept.txt" in worker.files_modified
    assert "directory left out (File name too long)" in (worker.message or "")


def test_a_store_that_leads_elsewhere_brings_nothing_along(home_from, repo: Path) -> None:
    """To be given by its id what was not given: by an alternate that is the user's own store."""
    base = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-qb", "private")
    git(repo, "commit", "-q", "--allow-empty", "-m", "private")
    private = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-q", "main")
    lead = f'echo {repo}/.git/objects > "$GIT_DIR/objects/info/alternates"'
    worker = home_from(f'{lead}; echo {private} > "$GIT_DIR/HEAD"' + KEPT)
    assert worker.files_modified == ["kept.txt"]
    assert git(repo, "rev-parse", f"{worker.branch}~1") == base


def test_a_broken_index_loses_nothing(home_from) -> None:
    worker = home_from('echo garbage > "$GIT_DIR/index"; touch "$GIT_DIR/index.lock"' + KEPT)
    assert worker.files_modified == ["kept.txt"]


def test_a_nested_repository_comes_home_as_files(home_from, repo: Path) -> None:
    worker = home_from(f"{ALONE} git init -q sub; echo x > sub/x; mkdir deep; touch deep/.git")
    assert "sub/x" in worker.files_modified
    assert not [path for path in worker.files_modified if "/.git" in path]
    assert "nested repository" in (worker.message or "")
    assert "160000" not in git(repo, "ls-tree", "-r", worker.branch)


def test_special_files_are_left_out(home_from) -> None:
    worker = home_from("mkfifo pipe; ln -s /etc/passwd link; ln -s loop loop" + KEPT)
    assert worker.files_modified == ["kept.txt", "link", "loop"]
    assert "special file removed: pipe" in (worker.message or "")


def test_what_is_noted_of_very_many_is_noted_of_a_few(home_from) -> None:
    worker = home_from("mkfifo $(seq 4000)" + KEPT)
    assert worker.files_modified == ["kept.txt"]
    assert 1 <= (worker.message or "").count("special file removed") <= 20


def test_a_link_comes_home_as_a_link(home_from, repo: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("sesame")
    worker = home_from(f"ln -s {tmp_path} out; ln -sf {tmp_path}/secret a.txt" + KEPT)
    assert show(repo, f"{worker.branch}:out") == str(tmp_path)
    assert "sesame" not in git(repo, "log", "-p", worker.branch)


def test_locked_files_are_opened(home_from) -> None:
    worker = home_from("mkdir -p shut/in; echo x > shut/in/x; chmod 0 shut/in/x shut/in shut")
    assert worker.files_modified == ["shut/in/x"]


def test_a_file_that_is_too_large_is_left_out(home_from) -> None:
    worker = home_from("truncate -s 101M 'a [big] *file' 'k*'" + KEPT)
    assert worker.files_modified == ["kept.txt"]
    assert "file over 100 MiB left out: a [big] *file" in (worker.message or "")


def test_odd_names_come_home(home_from) -> None:
    odd = ["-rf", ":(exclude)x", "a*b", "back\\slash", "new\nline", "é", "--help", '"quoted"']
    quoted = " ".join("'" + name.replace("'", "'\\''") + "'" for name in odd)
    worker = home_from(f'for name in {quoted}; do echo x > "./$name"; done')
    assert sorted(worker.files_modified) == sorted(odd)


@pytest.mark.parametrize("name", [".GIT", "git~1", ".git."])
def test_a_name_that_git_refuses_keeps_nothing_out(home_from, name: str) -> None:
    worker = home_from(f"mkdir a z; touch a/{name} a/more z/more" + KEPT)
    assert worker.files_modified == ["a/more", "kept.txt", "z/more"]
    assert "some files could not be added" in (worker.message or "")


def test_a_file_that_its_attributes_do_not_fit_keeps_nothing_out(home_from, repo: Path) -> None:
    attributes = "echo '*.txt working-tree-encoding=UTF-16LE' > .gitattributes"
    worker = home_from(f"{attributes}; printf odd > odd.txt" + KEPT)
    assert worker.files_modified == [".gitattributes", "kept.txt", "odd.txt"]
    assert show(repo, f"{worker.branch}:odd.txt") == "odd"
    assert "files were added without conversion" in (worker.message or "")


def test_its_git_does_not_tidy_up_by_itself(home_from, repo: Path) -> None:
    """A tidying takes long, goes on behind the worker's back, and is of no use in a store."""
    commit = "git commit -q --allow-empty -m"
    worker = home_from(
        f"""for n in 1 2; do {commit} $n; git repack -qd; done
        git config gc.autoPackLimit 1; git config gc.autoDetach false; {commit} last
        git gc --auto --quiet
        find "$GIT_DIR"/objects/pack -name '*.pack' | wc -l > packs"""
    )
    assert show(repo, f"{worker.branch}:packs").strip() == "2"


def test_bytes_that_are_no_text_come_home(home_from) -> None:
    worker = home_from("printf x > \"$(printf 'latin\\351')\"")
    assert worker.files_modified == ["latin\\xe9"]


def test_its_git_configuration_and_hooks_run_nowhere(home_from, tmp_path: Path) -> None:
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


def test_the_users_name_is_one_line_whatever_is_in_it(home_from, repo: Path) -> None:
    git(repo, "config", "user.name", 'A "B" \\ C\n[core]\n\tfsmonitor = false')
    worker = home_from("git config user.name > name; ! git config core.fsmonitor")
    assert show(repo, f"{worker.branch}:name") == 'A "B" \\ C [core] \tfsmonitor = false'


def test_ignored_files_stay_out(home_from) -> None:
    worker = home_from("echo '*.o' > .gitignore; echo x > x.o" + KEPT)
    assert worker.files_modified == [".gitignore", "kept.txt"]


def test_deleting_everything_is_work_too(home_from, repo: Path) -> None:
    worker = home_from("rm -rf ./* .git")
    assert worker.files_modified == ["a.txt", "src/app.py"]
    assert git(repo, "ls-tree", "-r", worker.branch) == ""
