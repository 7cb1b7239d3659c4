"""Tests of copied untracked files: as requested, no secrets by accident, never committed."""

import os
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.events import Event, Notice
from orchestrator.base.results import Status, WorkerResult
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.presets import Preset
from orchestrator.repository.repository import BACKUPS, Repository
from orchestrator.runs.cleanup.inventory import is_clean, owners
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.runner import ParallelRunner
from orchestrator.worker.workspace.copy_untracked import copy_in
from orchestrator.worker.workspace.untracked import (
    LIST,
    allow_list,
    choose_copies,
    held_back,
    is_secret,
)
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import fingerprint, git
from tests.support.runs import configured, shell_run


@pytest.fixture
def repo(repo: Path) -> Path:
    """Return a repository with ignored and with merely untracked files."""
    (repo / ".gitignore").write_text("/deps/\n.env*\n*.local\nlogs/*.log\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "ignore")
    for name in ("deps/a/index.js", "deps/b.js", "conf/app.local", "logs/x.log", "data/one.csv"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(name)
    (repo / ".env").write_text("TOKEN=1\n")
    (repo / "notes.txt").write_text("mine\n")
    return repo


def chosen(repo: Path, *patterns: str) -> list[str]:
    return list(choose_copies(Repository(repo), patterns).files)


def run_one(repo: Path, engine: LocalEngine, task: str, *copied: str) -> WorkerResult:
    isolation = Isolation(network="none", copied=copied)
    (worker,) = shell_run(repo, engine, task, isolation=isolation).results
    return worker


class TestChoice:
    def test_nothing_is_copied_by_default(self, repo: Path) -> None:
        assert chosen(repo) == []

    def test_matching_untracked_files_are_chosen(self, repo: Path) -> None:
        assert chosen(repo, "deps/", "*.csv", "a.txt") == [
            "data/one.csv", "deps/a/index.js", "deps/b.js",
        ]  # fmt: skip

    def test_negated_patterns_exclude_files(self, repo: Path) -> None:
        assert chosen(repo, "deps/**", "!b.js") == ["deps/a/index.js"]

    def test_worktreeinclude_selects_only_ignored_files(self, repo: Path) -> None:
        (repo / LIST).write_text("# ours\n\n*.local\n*.csv\na.txt\n")
        assert chosen(repo) == ["conf/app.local"]

    def test_secret_file_must_be_named_explicitly(self, repo: Path) -> None:
        with pytest.raises(ConfigError) as error:
            chosen(repo, ".e*")
        assert "`.env`" in error.value.message
        assert "--copy .env" in (error.value.hint or "")
        assert chosen(repo, ".env") == [".env"]

    def test_explicit_name_covers_only_its_own_path(self, repo: Path) -> None:
        (repo / "conf" / ".env").write_text("TOKEN=2\n")
        with raises("copy.secret", "conf/.env"):
            chosen(repo, ".env")
        assert chosen(repo, "conf/.env", "/.env") == [".env", "conf/.env"]

    def test_untracked_worktreeinclude_may_name_a_secret(self, repo: Path) -> None:
        (repo / LIST).write_text(".env\n")
        assert chosen(repo) == [".env"]

    @pytest.mark.parametrize(
        "patterns", ["**", "*", "/deps/**", ".env", "conf/", "*.local\n!nothing", "[cd]*"]
    )
    def test_tracked_list_chooses_nothing_until_its_content_is_allowed(
        self, repo: Path, patterns: str
    ) -> None:
        """No list of names can tell which files of the user hold credentials."""
        (repo / LIST).write_text(patterns + "\n")
        mine = chosen(repo)
        assert mine
        git(repo, "add", LIST)
        copies = choose_copies(Repository(repo), ["data/"])
        assert copies.files == ("data/one.csv",)
        *_, notice = copies.notices
        assert all(f"`{name}`" in notice for name in mine)
        assert "`orchestrator config allow`" in notice
        allowed = allow_list(Repository(repo))
        assert list(allowed.files) == mine
        assert chosen(repo) == mine
        *_, notice = allowed.notices
        assert all(f"`{name}`" in notice for name in mine)
        (repo / LIST).write_text(patterns + "\n# changed\n")
        assert chosen(repo) == []

    def test_what_was_allowed_holds_for_this_repository_only(
        self, repo: Path, tmp_path: Path
    ) -> None:
        (repo / LIST).write_text("*.local\n")
        git(repo, "add", LIST)
        git(repo, "commit", "-qm", "list")
        assert allow_list(Repository(repo)).files == ("conf/app.local",)
        git(tmp_path, "clone", "-q", str(repo), str(tmp_path / "clone"))
        (tmp_path / "clone" / "app.local").touch()
        assert chosen(tmp_path / "clone") == []

    def test_nothing_is_allowed_without_a_list(self, repo: Path) -> None:
        for content in ("", "# only a comment\n"):
            (repo / LIST).write_text(content)
            with raises("copy.no-list"):
                allow_list(Repository(repo))

    def test_notice_on_very_many_files_names_directories(self, repo: Path) -> None:
        (repo / LIST).write_text("*\n")
        for number in range(150):
            (repo / "deps" / "a" / f"{number}\n.js").touch()
        git(repo, "add", LIST)
        *_, notice = choose_copies(Repository(repo), ()).notices
        assert "not copied: `conf/app.local`, `deps/` (152 files), `logs/x.log`;" in notice
        assert "\n" not in notice

    @pytest.mark.parametrize("name", [LIST, ".WorktreeInclude"])
    def test_a_preset_excludes_what_an_allowed_list_names(self, repo: Path, name: str) -> None:
        """A file system that ignores case reads a tracked file with capitals as the list."""
        (repo / name).write_text("*\n")
        git(repo, "add", name)
        (repo / LIST).write_text("*\n")
        allow_list(Repository(repo))
        copies = choose_copies(Repository(repo), ["data/"], heeds_repository=False)
        assert copies.files == ("data/one.csv",)
        *_, notice = copies.notices
        assert notice.endswith("the preset forbids it; name files with `--copy`")
        assert "`conf/app.local`, `deps/a/index.js`, `deps/b.js`, `logs/x.log`" in notice

    def test_a_preset_does_not_concern_an_untracked_list(self, repo: Path) -> None:
        (repo / LIST).write_text("*.local\n")
        copies = choose_copies(Repository(repo), (), heeds_repository=False)
        assert (copies.files, copies.notices) == (("conf/app.local",), ())

    def test_worktreeinclude_that_is_a_fifo_is_refused(self, repo: Path) -> None:
        os.mkfifo(repo / LIST)
        with pytest.raises(ConfigError, match="not a regular file"):
            chosen(repo)

    def test_links_out_of_the_repository_are_not_copied(self, repo: Path) -> None:
        (repo / "deps" / "in").symlink_to("../a.txt")
        (repo / "deps" / "out").symlink_to("../../elsewhere")
        (repo / "deps" / "etc").symlink_to("/etc")
        copies = choose_copies(Repository(repo), ["deps/"])
        assert copies.files == ("deps/a/index.js", "deps/b.js", "deps/in")
        assert copies.notices == (
            "files were not copied because they are links out of the repository: "
            "`deps/etc`, `deps/out`",
        )

    def test_nested_repository_is_not_copied(self, repo: Path) -> None:
        git(repo, "init", "-q", "deps/nested")
        (repo / "deps" / "nested" / "file").write_text("x")
        assert chosen(repo, "deps/") == ["deps/a/index.js", "deps/b.js"]

    def test_pattern_without_a_match_causes_a_notice(self, repo: Path) -> None:
        copies = choose_copies(Repository(repo), ["deps/", "mistake.json"])
        assert copies.notices == ("a pattern of `copy` matches no untracked file: `mistake.json`",)

    def test_large_size_causes_a_notice(self, repo: Path) -> None:
        with (repo / "deps" / "big").open("wb") as file:
            file.truncate(101 * 1024**2)
        (notice,) = choose_copies(Repository(repo), ["deps/"]).notices
        assert notice == "3 untracked files, 101 MiB, will be copied into every worktree"

    @pytest.mark.parametrize("below", [".", "conf"])
    def test_no_ignored_file_becomes_part_of_an_image(self, repo: Path, below: str) -> None:
        (repo / "conf" / "new.ini").touch()
        (repo / "conf" / "forced.local").touch()
        git(repo, "add", "-f", "conf/forced.local")
        expected = {
            ".": {".git", ".env", "deps", "conf/app.local", "logs"},
            "conf": {"app.local"},
        }
        assert held_back(repo / below) == expected[below]


@pytest.mark.parametrize(
    "path",
    [
        ".env", ".env.production", "a/.npmrc", ".aws/config", ".ssh/known_hosts", "x/server.pem",
        "ID_RSA", "id_ed25519.bak", "credentials.json", "prod.tfstate", "kubeconfig",
        "service-account-prod.json", ".docker/config.json", ".netrc", ".pypirc", "tls/private.key",
    ],
)  # fmt: skip
def test_names_that_may_hold_a_secret(path: str) -> None:
    assert is_secret(path)


@pytest.mark.parametrize(
    "path",
    [
        ".env.example", "id_rsa.pub", "node_modules/x/test/key.pem", "src/keys.py",
        ".venv/lib/python3/site-packages/certifi/cacert.pem", "local.settings.json", ".docker/run",
    ],
)  # fmt: skip
def test_names_that_hold_no_secret(path: str) -> None:
    assert not is_secret(path)


class TestCopying:
    def test_mode_time_and_links_are_kept(self, tmp_path: Path) -> None:
        source, target = tmp_path / "a", tmp_path / "b"
        (source / "d").mkdir(parents=True)
        target.mkdir()
        (source / "d" / "run").write_text("x" * 100_000)
        (source / "d" / "run").chmod(0o750)
        os.utime(source / "d" / "run", (1, 1_000_000))
        (source / "d" / "link").symlink_to("run")
        assert copy_in(["d/link", "d/run"], source, target, tracked=set) == {"d/link", "d/run"}
        made = (target / "d" / "run").lstat()
        assert (made.st_mode & 0o777, made.st_mtime, made.st_nlink) == (0o750, 1_000_000, 1)
        assert (target / "d" / "run").read_text() == "x" * 100_000
        assert (target / "d" / "link").readlink() == Path("run")

    def test_links_are_not_followed(self, tmp_path: Path) -> None:
        source, target, elsewhere = (tmp_path / name for name in ("a", "b", "c"))
        (source / "d").mkdir(parents=True)
        (source / "d" / "file").write_text("x")
        target.mkdir()
        elsewhere.mkdir()
        (target / "d").symlink_to(elsewhere)
        assert copy_in(["d/file"], source, target, tracked=set) == frozenset()
        assert list(elsewhere.iterdir()) == []

    def test_existing_files_are_kept(self, tmp_path: Path) -> None:
        source, target = tmp_path / "a", tmp_path / "b"
        for place in (source, target):
            place.mkdir()
            for name in ("tracked", "mine"):
                (place / name).write_text(place.name)
        there = copy_in(["mine", "tracked"], source, target, tracked=lambda: {"tracked"})
        assert there == {"mine"}
        assert (target / "mine").read_text() == "b"


class TestRuns:
    def test_copies_are_present_and_not_committed(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        before = fingerprint(repo)
        task = 'cat deps/b.js .env notes.txt; test -z "$(git status --porcelain)" && echo w > w'
        worker = run_one(repo, local_engine, task, "deps/", ".env", "notes.txt")
        assert (worker.status, worker.files_modified) == (Status.SUCCESS, ["w"])
        assert (Path(worker.log or "") / "stdout.log").read_text() == "deps/b.jsTOKEN=1\nmine\n"
        seen = Path(worker.worktree_path)
        assert (seen / "notes.txt").read_text() == "mine\n"
        assert (seen / "deps" / "a" / "index.js").read_text() == "deps/a/index.js"
        assert fingerprint(repo) == before

    @pytest.mark.parametrize(
        ("preset", "allowed", "files"),
        [("untrusted", True, []), (None, False, []), (None, True, ["stolen"])],
    )
    def test_tracked_list_passes_on_only_what_user_and_preset_allow(
        self,
        repo: Path,
        local_engine: LocalEngine,
        preset: Preset | None,
        allowed: bool,
        files: list[str],
    ) -> None:
        (repo / LIST).write_text("*.local\n")
        git(repo, "add", LIST)
        git(repo, "commit", "-qm", "list")
        if allowed:
            allow_list(Repository(repo))
        task = "test ! -e conf/app.local || cp conf/app.local stolen"
        told: list[Event] = []
        runner = ParallelRunner(
            configured(task, preset=preset), repo, engine=local_engine, emit=told.append
        )
        (worker,) = runner.execute().results
        assert (worker.status, worker.files_modified) == (Status.SUCCESS, files)
        assert any("`conf/app.local`" in event.message for event in told if type(event) is Notice)

    def test_copies_are_not_committed_even_if_gitignore_changes(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        task = "printf '!.env\\n!deps/\\n!notes.txt\\n' > .gitignore; echo more >> notes.txt"
        worker = run_one(repo, local_engine, task, "deps/", ".env", "notes.txt")
        assert worker.files_modified == [".gitignore"]

    def test_copy_committed_by_the_worker_causes_a_note(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        task = "git add -f .env && git commit -qm mine && echo w > w"
        worker = run_one(repo, local_engine, task, ".env")
        assert worker.files_modified == [".env", "w"]
        assert "a copied file is in the worker's own commits: .env" in (worker.message or "")

    def test_values_of_copied_files_are_redacted(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        (repo / ".env").write_text('export API_KEY="sesame, open"\nPORT=12345678\n')
        task = "cat .env; cp .env stolen"
        worker = run_one(repo, local_engine, task, ".env")
        printed = (Path(worker.log or "") / "stdout.log").read_text()
        assert printed == 'export API_KEY="[redacted:API_KEY]"\nPORT=12345678\n'
        assert "contains the value of `API_KEY` in stolen" in (worker.message or "")

    def test_new_files_beside_copies_are_committed(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        worker = run_one(repo, local_engine, "echo 2 > data/two.csv", "data/*")
        assert worker.files_modified == ["data/two.csv"]

    def test_a_tracked_file_is_not_replaced(self, repo: Path, local_engine: LocalEngine) -> None:
        base = git(repo, "rev-parse", "HEAD")
        git(repo, "rm", "-q", "--cached", "a.txt")
        git(repo, "commit", "-qm", "gone")
        (repo / "a.txt").write_text("mine now\n")
        isolation = Isolation(network="none", copied=("a.txt",))
        (worker,) = shell_run(repo, local_engine, "cat a.txt; echo w >> a.txt", base=base,
                              isolation=isolation).results  # fmt: skip
        assert worker.files_modified == ["a.txt"]
        assert git(repo, "show", f"{worker.branch}:a.txt") == "a\nw"

    def test_unchanged_copies_are_not_backed_up(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        run_one(repo, local_engine, "true", "notes.txt", "data/")
        repository = Repository(repo)
        assert is_clean(repository, owners(repository)[1])
        report = cleanup(repo, engine=local_engine)
        assert [worker.backup for worker in report.workers] == [None]
        assert git(repo, "for-each-ref", BACKUPS) == ""

    def test_copy_changed_by_the_user_is_backed_up(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        worker = run_one(repo, local_engine, "true", "notes.txt", "data/")
        (Path(worker.worktree_path) / "notes.txt").write_text("changed\n")
        repository = Repository(repo)
        assert not is_clean(repository, owners(repository)[1])
        (cleaned,) = cleanup(repo, engine=local_engine).workers
        assert git(repo, "show", f"{cleaned.backup}:notes.txt") == "changed"
        listed = git(repo, "ls-tree", "-r", "--name-only", str(cleaned.backup)).splitlines()
        assert "data/one.csv" not in listed

    def test_retry_has_the_copies(self, repo: Path, local_engine: LocalEngine) -> None:
        task = "cat notes.txt; echo w >> w; test $(wc -l < w) = 2"
        isolation = Isolation(network="none", copied=("notes.txt",))
        (worker,) = shell_run(
            repo, local_engine, task, isolation=isolation, retries=1, retry_delay=0,
            retry_from="keep",
        ).results  # fmt: skip
        assert (worker.status, worker.attempts) == (Status.SUCCESS, 2)
        assert worker.files_modified == ["w"]
