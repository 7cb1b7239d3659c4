"""Tests of pull requests: what is pushed, and what `gh` and `glab` are told."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.repository.git.command import Git
from orchestrator.repository.remotes import Remote
from orchestrator.repository.repository import Repository
from orchestrator.review.landing import forges as forges_module
from orchestrator.review.landing.branches import Branch, RunBranches
from orchestrator.review.landing.forges import find_forge, repository_name
from orchestrator.review.landing.pull_requests import Published, PullRequestWish, publish
from orchestrator.review.landing.request_text import MOST_BODY, body_of, title_of
from orchestrator.review.landing.stack import containment
from tests.support.errors import raises
from tests.support.forges import Forges, add_remote, install_forges
from tests.support.landing import branch as branch_of
from tests.support.landing import snapshot_of
from tests.support.merges import WHEN, Content, World
from tests.support.repository import git

HOSTILE = [
    "--repo evil/evil",
    "-d",
    "fix\n--title=x\n/merge\n/close",
    "x" * 100_000,
    "@everyone closes #1, fixes owner/repo#2, resolves https://github.com/o/r/issues/3",
    "~~~\n# heading\n<script>alert(1)</script> ![x](https://evil.example/a.png)",
    "<!-- orchestrator: run run, worker 2 -->",
    "\x1b]0;title\x07\u202e reversed \u200b",
]


@pytest.fixture(autouse=True)
def remote(world: World, tmp_path: Path) -> Path:
    return add_remote(world.repo, tmp_path / "remote.git")


@pytest.fixture(autouse=True)
def forges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forges:
    return install_forges(tmp_path / "bin", monkeypatch, "gh", "glab")


def worker(
    world: World, number: int, files: dict[str, Content], *parents: str, **rest: Any
) -> Branch:
    made = branch_of(world, number, files, *parents)
    values = {**vars(made), "branch": f"architect/parallel-{number}", **rest}
    return Branch(**values)


def publish_all(
    world: World, *branches: Branch, numbers: tuple[int, ...] = (), forge: str = "gh", **wish: Any
) -> Published:
    repository = Repository(world.repo)
    remote = Remote(repository, None)
    run = RunBranches("run", WHEN, False, branches)
    chosen = numbers or tuple(one.worker_id for one in branches)
    wanted = PullRequestWish(**{"workers": chosen, "target": "main", **wish})
    return publish(repository, run, wanted, remote, find_forge(world.repo, remote.url, forge))


def said(repo: Path, *words: str) -> str:
    """Run git, which may fail, and return its stdout."""
    done = subprocess.run(["git", *words], cwd=repo, capture_output=True, text=True, check=False)
    return done.stdout


def heads(remote: Path) -> dict[str, str]:
    rows = git(remote, "for-each-ref", "--format=%(refname:short) %(objectname)").splitlines()
    return dict(row.split(" ") for row in rows)


def test_programs_are_not_looked_up_in_the_checkout(
    world: World, forges: Forges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of the checkout in `PATH` may have files of workers that were merged."""
    one = worker(world, 1, {"new": "x\n"})
    (world.repo / "bin").mkdir()
    for name in ("gh", "git"):
        (world.repo / "bin" / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/MARK\n")
        (world.repo / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"bin:{os.environ['PATH']}")
    publish_all(world, one)
    assert not (tmp_path / "MARK").exists()
    assert forges.calls("create")


def test_one_branch_is_pushed_and_one_pull_request_created(
    world: World, remote: Path, forges: Forges
) -> None:
    one = worker(world, 1, {"new": "x\n"}, task="Add a file", summary="It is there.")
    branch_of(world, 2, {"other": "x\n"})
    git(world.repo, "tag", "mine")
    files = {name: what for name, what in snapshot_of(world.repo).items() if ".git/" not in name}
    local = git(world.repo, "for-each-ref", "refs/heads", "refs/tags", "refs/stash")
    published = publish_all(world, one, draft=True)
    assert {name: what for name, what in snapshot_of(world.repo).items()
            if ".git/" not in name} == files  # fmt: skip
    assert git(world.repo, "for-each-ref", "refs/heads", "refs/tags", "refs/stash") == local
    name = "architect/parallel-1-run"
    (done,) = published.workers
    assert heads(remote) == {"main": world.base, name: done.commit}
    assert (done.action, done.head, done.base) == ("created", name, "main")
    assert done.url == "https://forge.example/gh/7"
    (call,) = forges.calls("create")
    assert call["argv"] == [
        "pr", "create", f"--head={name}", "--base=main", "--title=Add a file", "--body-file=-",
        "--draft",
    ]  # fmt: skip
    assert call["cwd"] == str(world.repo)
    for part in (
        "<!-- orchestrator: run run, worker 1 -->",
        "Add a file",
        "It is there.",
        "new | +1 -0",
    ):
        assert part in call["stdin"]


def test_merge_request_of_gitlab(world: World, forges: Forges) -> None:
    one = worker(world, 1, {"new": "x\n"}, task="Add a file")
    published = publish_all(world, one, forge="glab", draft=True)
    assert published.workers[0].url == "https://forge.example/glab/7"
    (call,) = forges.calls("create")
    *words, description, draft, yes = call["argv"]
    assert words == [
        "mr", "create", "--source-branch=architect/parallel-1-run", "--target-branch=main",
        "--title=Add a file",
    ]  # fmt: skip
    assert (draft, yes) == ("--draft", "--yes")
    assert description.startswith("--description=<!-- orchestrator: run run, worker 1 -->")


def test_repeating_updates_the_request_and_pushes_nothing(
    world: World, remote: Path, forges: Forges
) -> None:
    one = worker(world, 1, {"new": "x\n"})
    publish_all(world, one)
    body = forges.calls("create")[0]["stdin"]
    forges.has_open(number=7, url="https://forge.example/7", body=body)
    git(remote, "config", "receive.denyCurrentBranch", "refuse")
    published = publish_all(world, one)
    assert (published.workers[0].action, published.workers[0].url) == (
        "updated", "https://forge.example/7",
    )  # fmt: skip
    assert forges.calls("edit")[0]["argv"][:3] == ["pr", "edit", "7"]
    assert len(forges.calls("create")) == 1


def test_text_of_a_request_that_someone_changed_is_kept(world: World, forges: Forges) -> None:
    forges.has_open(number=7, url="https://forge.example/7", body="my own words")
    published = publish_all(world, worker(world, 1, {"new": "x\n"}))
    assert published.workers[0].action == "pushed"
    assert forges.calls("create", "edit") == []


def of_fork(**rest: object) -> dict[str, object]:
    """Return a request from a fork, whose branch has the name of a worker's branch."""
    ids = {"isCrossRepository": True, "source_project_id": 2, "target_project_id": 1}
    names = {"number": 666, "iid": 666, "url": "https://forge.example/666", "baseRefName": "main"}
    return {**names, **ids, **rest}


@pytest.mark.variants("gh-isCrossRepository")
@pytest.mark.parametrize("unknown", ["isCrossRepository", "source_project_id"])
@pytest.mark.parametrize("forge", ["gh", "glab"])
def test_request_from_a_fork_is_not_taken_for_the_workers(
    world: World, forges: Forges, forge: str, unknown: str
) -> None:
    one = worker(world, 1, {"new": "x\n"})
    marked = body_of(Repository(world.repo), "run", one, None)
    # A number without its counterpart, and an answer without the fact, are no proof either.
    vague = of_fork(body=marked, source_project_id=None, target_project_id=None)
    del vague[unknown]
    strange = [of_fork(body=marked, description=marked), vague]
    forges.has_open(*strange, **of_fork(body=marked))
    done = publish_all(world, one, forge=forge)
    assert (done.workers[0].action, len(forges.calls("create"))) == ("created", 1)
    assert forges.calls("edit", "update") == []

    own = {"number": 7, "iid": 7, "url": "https://forge.example/7", "body": marked}
    forges.has_open(*strange, **own, description=marked, web_url="https://forge.example/7")
    again = publish_all(world, one, forge=forge)
    assert (again.workers[0].action, again.workers[0].url) == (
        "updated", "https://forge.example/7",
    )  # fmt: skip
    (call,) = forges.calls("edit", "update")
    assert call["argv"][2] == "7"


def test_commits_of_reviewers_on_the_branch_are_kept(world: World, remote: Path) -> None:
    one = worker(world, 1, {"new": "x\n"})
    (done,) = publish_all(world, one).workers
    review = world.commit({"review": "x\n"}, str(done.commit))
    git(world.repo, "push", "-q", "origin", f"{review}:refs/heads/architect/parallel-1-run")
    publish_all(world, one)
    assert heads(remote)["architect/parallel-1-run"] == review


def test_other_commits_on_the_branch_are_never_overwritten(
    world: World, remote: Path, forges: Forges
) -> None:
    other = world.commit({"other": "x\n"})
    git(world.repo, "push", "-q", "origin", f"{other}:refs/heads/architect/parallel-1-run")
    one = worker(world, 1, {"new": "x\n"})
    with raises("remote.branch-taken", "no push is forced"):
        publish_all(world, one)
    with raises("push.failed", "no push is forced"):
        Remote(Repository(world.repo), None).push(one.commit, "architect/parallel-1-run")
    assert heads(remote)["architect/parallel-1-run"] == other
    assert forges.calls("create") == []


class TestBranchOfOthers:
    """The remote repository has a branch with the name that a user chose for the worker's."""

    NAME = "releases/v1"

    def named(self, world: World) -> Branch:
        """Return a worker whose second commit has the files of the base, and its third does not."""
        first = world.commit({"new": "x\n"})
        second = world.commit({"new": None}, first)
        names = {"branch": self.NAME, "is_named": True}
        return worker(world, 1, {"new": "y\n"}, second, **names)

    @pytest.mark.parametrize("keep_commits", [False, True])
    @pytest.mark.parametrize("at", ["base", "target", "merged", "same files", "below"])
    def test_nothing_is_pushed_onto_it(
        self, world: World, remote: Path, forges: Forges, at: str, keep_commits: bool
    ) -> None:
        one, tip = self.named(world), world.base
        if at != "base":
            tip = world.commit({"main": "x\n"})
        if at in ("target", "merged"):
            git(world.repo, "push", "-q", "origin", f"{tip}:refs/heads/main")
        if at == "merged":
            merge = world.commit({"new": "y\n", "main": "x\n"}, one.commit, tip)
            one = Branch(**{**vars(one), "commit": merge})
        if at == "same files":
            copied = world.commit({"main": "x\n", "new": None}, one.commit)
            one = Branch(**{**vars(one), "commit": world.commit({"more": "x\n"}, copied)})
        if at == "below":
            own = world.commit({"more": "x\n"}, tip)
            one = Branch(**{**vars(one), "base": tip, "commit": own})
        git(world.repo, "push", "-q", "origin", f"{tip}:refs/heads/{self.NAME}")
        before = heads(remote)
        for dry_run in (True, False):
            with raises("remote.branch-taken", f"`{self.NAME}`", "worker 1"):
                publish_all(world, one, dry_run=dry_run, keep_commits=keep_commits)
        assert heads(remote) == before
        assert forges.calls() == []

    @pytest.mark.variants("True-False")
    @pytest.mark.parametrize("then", [False, True])
    @pytest.mark.parametrize("first", [False, True])
    def test_later_work_of_the_worker_is_pushed(
        self, world: World, remote: Path, first: bool, then: bool
    ) -> None:
        one = self.named(world)
        before = publish_all(world, one, keep_commits=first).workers[0].commit
        later = Branch(**{**vars(one), "commit": world.commit({"more": "y\n"}, one.commit)})
        if then and not first:
            # The worker's own commits do not descend from the one that has all of them.
            with raises("remote.branch-taken"):
                publish_all(world, later, keep_commits=then)
            return
        commit = publish_all(world, later, keep_commits=then).workers[0].commit
        assert heads(remote)[self.NAME] == commit
        assert git(remote, "log", "-1", "--format=%P", str(commit)) == before
        assert publish_all(world, later, keep_commits=then).workers[0].commit == commit

    @pytest.mark.parametrize("begins", ["absent", "published"])
    def test_branch_that_changes_meanwhile_is_left_alone(
        self, world: World, remote: Path, begins: str
    ) -> None:
        one = self.named(world)
        if begins == "published":
            publish_all(world, one)
            one = Branch(**{**vars(one), "commit": world.commit({"more": "y\n"}, one.commit)})
        asked = Remote(Repository(world.repo), None)
        assert (self.NAME in asked.heads) is (begins == "published")
        # Somebody else's branch, from which every commit of the worker descends.
        git(world.repo, "push", "-q", "-f", "origin", f"{world.base}:refs/heads/{self.NAME}")
        wish = PullRequestWish(workers=(1,), target="main")
        run = RunBranches("run", WHEN, False, (one,))
        forge = find_forge(world.repo, asked.url, "gh")
        with raises("push.failed", "repeat the command"):
            publish(Repository(world.repo), run, wish, asked, forge)
        assert heads(remote)[self.NAME] == world.base


def test_push_that_a_hook_refuses_has_no_hint_to_remove_the_branch(
    world: World, remote: Path, forges: Forges
) -> None:
    hook = remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with raises("push.failed") as caught:
        publish_all(world, worker(world, 1, {"new": "x\n"}))
    assert caught.value.hint == "check the access to `origin`: `git ls-remote origin`"
    assert forges.calls("create") == []


@pytest.mark.parametrize("settings", [{"remote.origin.mirror": "true"}, {"push.followTags": "true"},
                                      {"remote.origin.push": "+refs/*:refs/*"}],
                         ids=["mirror", "tags", "all"])  # fmt: skip
@pytest.mark.variants("mirror", "tags")
def test_no_setting_of_git_pushes_more(
    world: World, remote: Path, settings: dict[str, str]
) -> None:
    git(world.repo, "tag", "-a", "v1", "-m", "v1")
    for key, value in settings.items():
        git(world.repo, "config", key, value)
    one = worker(world, 1, {"new": "x\n"})
    (done,) = publish_all(world, one).workers
    assert heads(remote) == {"main": world.base, "architect/parallel-1-run": done.commit}


def test_hook_of_the_repository_does_not_run(world: World, remote: Path) -> None:
    hook = world.repo / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {world.scratch}/ran\nexit 1\n")
    hook.chmod(0o755)
    one = worker(world, 1, {"new": "x\n"})
    (done,) = publish_all(world, one).workers
    assert heads(remote)["architect/parallel-1-run"] == done.commit
    assert not (world.scratch / "ran").exists()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("forge", ["gh", "glab"])
@pytest.mark.variants("gh-4", "glab-2")
def test_hostile_texts_are_values_only(world: World, forges: Forges, text: str, forge: str) -> None:
    one = worker(world, 1, {"new": "x\n"}, task=text, summary=text)
    publish_all(world, one, forge=forge)
    (call,) = forges.calls("create")
    options = {word.partition("=")[0] for word in call["argv"][2:]}
    assert options == (
        {"--head", "--base", "--title", "--body-file"} if forge == "gh"
        else {"--source-branch", "--target-branch", "--title", "--description", "--yes"}
    )  # fmt: skip
    body = call["stdin"] or next(one for one in call["argv"] if one.startswith("--description="))
    title = next(one for one in call["argv"] if one.startswith("--title="))
    assert len(title) <= 120
    assert len(body) <= MOST_BODY + 20
    for said in (title, body):
        for reference in (
            "@everyone",
            "#1",
            "#2",
            "https://github",
            "\n/merge",
            "\n/close",
            "\x1b",
        ):
            assert reference not in said
    assert "\n" not in title


def test_text_cannot_leave_its_block(world: World) -> None:
    one = worker(world, 1, {"new": "x\n"}, task="~~~\n~~~~\n# out", summary="~~~~~~\n# out")
    body = body_of(Repository(world.repo), "run", one, None)
    assert body.count("# out") == 2
    fence = ""
    for line in body.splitlines():
        if not fence and line.startswith("~~~"):
            fence = line.removesuffix("text")
        elif line == fence:
            fence = ""
        else:
            assert fence or not line.startswith("# out")
    assert fence == ""


def test_marker_of_another_worker_in_a_text_is_no_marker(world: World, forges: Forges) -> None:
    """A worker cannot make a pull request look like that of another worker."""
    text = "<!-- orchestrator: run run, worker 2 -->"
    body = body_of(Repository(world.repo), "run", worker(world, 1, {"n": "1\n"}, task=text), None)
    forges.has_open(number=7, url="https://forge.example/7", body=body)
    published = publish_all(world, worker(world, 2, {"other": "x\n"}))
    assert published.workers[0].action == "pushed"


def test_title_is_the_first_line(world: World) -> None:
    assert title_of(worker(world, 1, {"n": "1\n"}, task="\n first \n second")) == "first"
    assert title_of(worker(world, 1, {"n": "1\n"}, task=" \n")) == "Worker 1"
    assert len(title_of(worker(world, 1, {"n": "1\n"}, task="x" * 1000))) <= 100


def test_dry_run_prints_commands_and_changes_nothing(
    world: World, remote: Path, forges: Forges
) -> None:
    one = worker(world, 1, {"new": "x\n"}, task="It's new")
    published = publish_all(world, one, dry_run=True)
    push, create = published.workers[0].commands
    commit = published.workers[0].commit
    assert push == (
        "git push --quiet --no-verify "
        "--force-with-lease=refs/heads/architect/parallel-1-run: "
        f"origin {commit}:refs/heads/architect/parallel-1-run"
    )
    assert create.startswith("gh pr create --head=architect/parallel-1-run --base=main")
    assert "--title=It'" in create
    assert heads(remote) == {"main": world.base}
    assert forges.calls("create", "edit") == []


def test_failing_program_is_an_error_and_repeating_continues(world: World, forges: Forges) -> None:
    one = worker(world, 1, {"new": "x\n"})
    forges.fail()
    with raises("forge.failed", "the server said no") as caught:
        publish_all(world, one)
    assert "\x1b" not in caught.value.message
    (forges.place / "fails").unlink()
    assert publish_all(world, one).workers[0].action == "created"


def test_missing_program_remote_and_branch_are_errors(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = worker(world, 1, {"new": "x\n"})
    git_only = tmp_path / "only-git"
    git_only.mkdir()
    (git_only / "git").symlink_to("/usr/bin/git")
    monkeypatch.setenv("PATH", str(git_only))
    with raises("forge.missing", "`gh`"):
        publish_all(world, one)
    with raises("remote.unknown", "`upstream`"):
        Remote(Repository(world.repo), "upstream")
    monkeypatch.undo()
    install_forges(tmp_path / "programs", monkeypatch, "gh")
    with raises("remote.no-branch", "`other`"):
        publish_all(world, one, target="other")
    empty = worker(world, 2, {}, commit=world.base)
    with raises("worker.no-changes", "worker 2"):
        publish_all(world, empty)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("git@github.com:owner/name.git", "github.com/owner/name"),
        ("https://token@github.com/owner/name", "github.com/owner/name"),
        ("ssh://git@gitlab.example:2222/group/sub/name.git", "gitlab.example/group/sub/name"),
        ("https://gitlab.com/group/name/", "gitlab.com/group/name"),
        ("https://me:to@ken@github.com/owner/name", "github.com/owner/name"),
        ("https://me:12/token@github.com/owner/name", None),
        ("me:to/ken@github.com/owner/name", None),
        ("/srv/git/name.git", None),
        ("file:///srv/git/name.git", None),
        ("../name", None),
    ],
)
def test_repository_of_an_address(url: str, name: str | None) -> None:
    assert repository_name(url) == name


SSH = """\
Host github.com-work
  HostName github.com
Host by-port
  HostName ssh.github.com
  Port 443
Host lab
  HostName gitlab.%h.example
Host named-gitlab-here
  HostName forge.example
Host ghe.example
  HostName 10.1.2.3
Host inner
  HostName gate
Match user deploy host special
  HostName ghe.example
Host canonical.example
  CanonicalizeHostname yes
  ProxyCommand touch {place}/evil
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the real ssh read a configuration of the test."""
    place = tmp_path / "ssh-bin"
    place.mkdir()
    (place / "config").write_text(SSH.format(place=place))
    (place / "ssh").write_text(f'#!/bin/sh\necho "$@" >> {place}/calls\n'
                               f'exec /usr/bin/ssh -F {place}/config "$@"\n')  # fmt: skip
    (place / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    return place


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("git@github.com-work:o/r.git", "gh --repo=github.com/o/r"),
        ("ssh://git@github.com-work:443/o/r", "gh --repo=github.com/o/r"),
        ("by-port:o/r", "gh --repo=github.com/o/r"),
        ("ssh://git@ssh.github.com:443/o/r.git", "gh --repo=github.com/o/r"),
        ("git@lab:group/sub/r", "glab --repo=https://gitlab.lab.example/group/sub/r"),
        ("named-gitlab-here:g/r", "glab --repo=https://forge.example/g/r"),
        ("git@ghe.example:o/r", "gh --repo=ghe.example/o/r"),
        ("git@inner:o/r", "gh --repo=inner/o/r"),
        ("deploy@special:o/r", "gh --repo=ghe.example/o/r"),
        ("git@special:o/r", "gh --repo=special/o/r"),
        ("git@canonical.example:o/r", "gh --repo=canonical.example/o/r"),
        ("git@gitlab.unlisted.example:g/r", "glab --repo=https://gitlab.unlisted.example/g/r"),
        ("https://github.com-work/o/r", "gh --repo=github.com-work/o/r"),
        ("git@-oProxyCommand=x:o/r", "gh --repo=-oProxyCommand=x/o/r"),
    ],
)
def test_host_of_an_alias_of_ssh_is_that_of_its_forge(
    tmp_path: Path, ssh: Path, url: str, command: str
) -> None:
    found = find_forge(tmp_path, url, None, installed=False).command()
    assert " ".join(found) == command
    assert not (ssh / "evil").exists()
    asked = (ssh / "calls").read_text() if (ssh / "calls").exists() else ""
    assert bool(asked) is not url.startswith(("https:", "git@-"))


@pytest.mark.parametrize("program", ["exit 255", "yes hostname ghe.example", "sleep 99"])
def test_ssh_that_fails_or_does_not_end_changes_nothing(
    tmp_path: Path, ssh: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(forges_module, "_SSH_TIMEOUT", 0.5)
    (ssh / "ssh").write_text(f"#!/bin/sh\n{program}\n")
    found = find_forge(tmp_path, "git@alias:o/r", None, installed=False).command()
    assert found[-1] == ("--repo=ghe.example/o/r" if "yes" in program else "--repo=alias/o/r")


class Sent:
    """A worker whose own commit says and is what a forge acts on, or what harms a reader."""

    message = (
        "tidy [skip ci]\n\nFixes #1, closes  owner/repo#2; cc @octocat\n/close\n\r/merge\n"
        "***NO_CI***\n%{all_commits}\nCo-authored-by: Boss <boss@acme.example>\n"
        "Change-Id: I0123456789\n\n\nskip-checks: true\n"
    )

    def __init__(self, world: World, number: int = 1, *parents: str) -> None:
        self.made = worker(world, number, {f"file{number}": "x\n"}, *parents, task=self.message)
        tree = git(world.repo, "rev-parse", f"{self.made.commit}^{{tree}}")
        parent = parents[0] if parents else world.base
        people = ("-c", "user.name=@everyone", "-c", "user.email=boss@acme.example")
        said = ("commit-tree", tree, "-p", parent, "-m", self.message)
        commit = git(world.repo, *people, *said)
        git(world.repo, "update-ref", f"refs/heads/architect/parallel-{number}", commit)
        self.branch = Branch(**{**vars(self.made), "commit": commit})


def test_what_is_pushed_is_one_commit_of_the_user(world: World, remote: Path) -> None:
    one = Sent(world).branch
    (done,) = publish_all(world, one).workers
    pushed = heads(remote)["architect/parallel-1-run"]
    assert git(remote, "log", "--format=%an %ae %cn %ce %P", pushed, f"^{world.base}") == (
        f"user user@example.org user user@example.org {world.base}"
    )
    assert git(remote, "rev-parse", f"{pushed}^{{tree}}") == git(
        world.repo, "rev-parse", f"{one.commit}^{{tree}}"
    )
    assert [(sent.commit, sent.effects) for sent in done.sent] == [(pushed, ())]
    trailers = git(remote, "log", "-1", "--format=%(trailers:only)", pushed)
    assert trailers.split() == ["Orchestrator-Run:", "run"]


def test_workers_commits_are_pushed_and_listed_if_the_user_asks(world: World, remote: Path) -> None:
    one = Sent(world).branch
    (done,) = publish_all(world, one, keep_commits=True).workers
    assert heads(remote)["architect/parallel-1-run"] == one.commit
    (sent,) = done.sent
    assert (sent.commit, sent.author) == (one.commit, "@everyone <boss@acme.example>")
    assert set(sent.effects) == {
        "closes an issue", "mentions somebody", "names an issue", "skips checks",
        "gives a command", "has a trailer", "is by another author",
    }  # fmt: skip


def test_stack_pushes_no_commit_of_a_worker(world: World, remote: Path) -> None:
    one = Sent(world).branch
    two = Sent(world, 2, one.commit).branch
    publish_all(world, one, two, stack=True)
    pushed = heads(remote)["architect/parallel-2-run"]
    sent = git(remote, "log", "--format=%ae", pushed, f"^{world.base}").split()
    assert sent == ["user@example.org"] * 2
    assert git(remote, "ls-tree", "--name-only", pushed).count("file") == 2


def test_later_work_of_a_branch_is_pushed_on_top(world: World, remote: Path) -> None:
    one = worker(world, 1, {"new": "x\n"})
    first = publish_all(world, one).workers[0].commit
    later = Branch(**{**vars(one), "commit": world.commit({"more": "y\n"}, one.commit)})
    second = publish_all(world, later).workers[0].commit
    assert heads(remote)["architect/parallel-1-run"] == second
    assert git(remote, "log", "-1", "--format=%P", str(second)) == first
    assert publish_all(world, later).workers[0].commit == second, "repeating changes nothing"


class Stacked:
    """Worker 2 builds on worker 1, and worker 3 on worker 2; worker 4 stands alone."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.one = worker(world, 1, {"lib": "a\nb\nc\n"})
        self.two = worker(world, 2, {"lib": "a\nB\nc\n", "two": "2\n"}, self.one.commit)
        self.three = worker(world, 3, {"three": "3\n"}, self.two.commit)
        self.four = worker(world, 4, {"four": "4\n"})
        self.all = (self.one, self.two, self.three, self.four)

    def publish(self, *numbers: int) -> dict[int, Any]:
        published = publish_all(self.world, *self.all, numbers=numbers, stack=True)
        return {one.worker_id: one for one in published.workers}

    def squash_land(self, *branches: Branch) -> str:
        """Land branches as one commit in the remote's main, as a forge does."""
        tree = git(self.world.repo, "rev-parse", f"{branches[-1].commit}^{{tree}}")
        squash = git(self.world.repo, "commit-tree", tree, "-p", self.world.base, "-m", "squash")
        git(self.world.repo, "push", "-q", "origin", f"{squash}:refs/heads/main")
        return squash


def test_stack_goes_into_the_branches_below(world: World, forges: Forges) -> None:
    done = Stacked(world).publish(3, 1, 4, 2)
    assert {number: one.base for number, one in done.items()} == {
        1: "main", 2: "architect/parallel-1-run", 3: "architect/parallel-2-run", 4: "main",
    }  # fmt: skip
    assert "` first." in done[2].note
    assert forges.calls("create")[0]["argv"][2].endswith("parallel-1-run")


def test_stack_without_its_lower_part_is_an_error(world: World, forges: Forges) -> None:
    with raises("stack.parent-unpublished", "worker 2", "worker 1"):
        Stacked(world).publish(2)
    assert forges.calls() == []


def test_merged_parent_needs_no_new_commit(world: World) -> None:
    stack = Stacked(world)
    before = stack.publish(1, 2)
    git(world.repo, "push", "-q", "origin", f"{before[1].commit}:refs/heads/main")
    done = stack.publish(1, 2)
    assert (done[1].action, done[2].base, done[2].commit) == (
        "contained", "main", before[2].commit,
    )  # fmt: skip


def test_squashed_parent_leaves_no_phantom_conflict(world: World, remote: Path) -> None:
    stack = Stacked(world)
    before = stack.publish(1, 2, 3)
    squash = stack.squash_land(stack.one)
    plain = said(world.repo, "merge-tree", "--write-tree", squash, stack.two.commit)
    assert "CONFLICT" in plain, "the positive control: a plain merge has a phantom conflict"

    done = stack.publish(1, 2, 3)

    assert (done[1].action, done[2].base, done[3].base) == (
        "contained", "main", "architect/parallel-2-run",
    )  # fmt: skip
    commit = done[2].commit
    assert heads(remote)["architect/parallel-2-run"] == commit
    assert git(world.repo, "log", "-1", "--format=%P", commit) == f"{before[2].commit} {squash}"
    assert git(world.repo, "diff", "--name-only", squash, commit).split() == ["lib", "two"]
    assert git(world.repo, "show", f"{commit}:lib").split() == ["a", "B", "c"]
    assert "has landed" in done[2].note
    assert stack.publish(2)[2].commit == commit, "repeating changes nothing"


def test_child_that_conflicts_with_what_landed_is_an_error(world: World, remote: Path) -> None:
    stack = Stacked(world)
    stack.publish(1, 2)
    stack.squash_land(stack.one)
    other = git(world.repo, "rev-parse", "refs/remotes/origin/main")
    changed = world.commit({"lib": "a\nx\nc\n", "two": "other\n"}, other)
    git(world.repo, "push", "-q", "origin", f"{changed}:refs/heads/main")
    before = heads(remote)
    with raises("stack.conflict", "`main`", "worker 1"):
        stack.publish(2)
    assert heads(remote) == before


@pytest.mark.usefixtures("forges")
def test_number_of_git_processes_grows_like_the_stack(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {}
    for size in (3, 8):
        branches, parents = [], (world.base,)
        for number in range(1, size + 1):
            branches.append(worker(world, number, {f"{size}-{number}": "x\n"}, *parents))
            parents = (branches[-1].commit,)
        started: list[object] = []
        real = Git._command

        def counted(self: Git, words: Any, started: Any = started, real: Any = real) -> Any:
            started.append(words)
            return real(self, words)

        with monkeypatch.context() as patched:
            patched.setattr(Git, "_command", counted)
            numbers = range(1, size + 1)
            publish_all(world, *branches, numbers=numbers, stack=True, dry_run=True)
        counts[size] = len(started)
    assert counts[8] - counts[3] <= 5 * 11, counts


def test_containment_is_that_of_git(world: World) -> None:
    one = world.commit({"a.txt": "1\n"})
    two = world.commit({"a.txt": "2\n"}, one)
    side = world.commit({"b.txt": "2\n"})
    both = world.commit({"a.txt": "2\n", "b.txt": "2\n"}, two, side)
    other = world.commit({"c.txt": "2\n"}, side)
    commits = [world.base, one, two, side, both, other]
    git_of = Repository(world.repo).git
    for chosen in (commits, commits[1:], [both, both, two], [one, other]):
        assert containment(git_of, chosen) == {
            (holder, held): git_of.succeeds("merge-base", "--is-ancestor", held, holder)
            for holder in chosen
            for held in chosen
        }


def test_files_of_a_required_filter_are_not_pushed_unasked(world: World, forges: Forges) -> None:
    git(world.repo, "config", "filter.crypt.clean", "rev")
    git(world.repo, "config", "filter.crypt.required", "true")
    one = worker(world, 1, {".gitattributes": "key filter=crypt\n", "key": "plain\n"})

    with raises("worker.unfiltered", "`key`"):
        publish_all(world, one)
    assert forges.calls() == []

    publish_all(world, one, unfiltered=True)
    assert forges.calls("create")
