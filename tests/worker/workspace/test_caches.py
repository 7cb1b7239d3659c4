"""Tests of shared caches: publication, selection, isolation between workers."""

import os
import sys
import zipfile
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.results import Reason, Status
from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.config.settings.values import CacheKind
from orchestrator.engine.interface.spec import BindMount
from orchestrator.repository.repository import Repository
from orchestrator.runs.purposes.cache_warming import Warming, warming_config
from orchestrator.state.run_directory import RunDirectory
from orchestrator.worker.in_container import pip_wheels
from orchestrator.worker.workspace.caches import (
    Caches,
    environment,
    find_caches,
    generations,
    publish,
    ready_caches,
)
from orchestrator.worker.workspace.caches import remove_generations as remove
from orchestrator.worker.workspace.layout import Mode
from orchestrator.worker.workspace.worker_user import shared_user, worker_user
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import branches, configured, shell_run, show

FILL = 'mkdir -p "$npm_config_cache/deep" && echo good > "$npm_config_cache/deep/a"'
READ = 'cat "$npm_config_cache/deep/a" > found.txt'


def warmed(repo: Path, engine: LocalEngine, setup: str = FILL) -> Status:
    wishes = configured("any", setup=(setup,), caches=("npm",), teardown=("exit 9",))
    wishes = warming_config(wishes.model_copy(update={"agent_cli": "shell"}))
    # The local engine does not support networks.
    isolation = wishes.isolation.model_copy(update={"setup_network": "none"})
    wishes = wishes.model_copy(update={"isolation": isolation})
    return Warming(wishes, repo, engine=engine).execute().results[0].status


def published(repo: Path) -> dict[str, bytes | None]:
    (newest,) = generations(Repository(repo))
    paths = sorted(newest.rglob("*"))
    return {
        str(path.relative_to(newest)): path.read_bytes() if path.is_file() else None
        for path in paths
    }


def test_later_workers_find_the_warmed_cache(repo: Path, local_engine: LocalEngine) -> None:
    assert warmed(repo, local_engine) is Status.SUCCESS
    assert branches(repo) == []
    assert published(repo) == {"npm": None, "npm/deep": None, "npm/deep/a": b"good\n"}
    assert (Repository(repo).state_dir / "caches").stat().st_mode & 0o777 == 0o700
    result = shell_run(repo, local_engine, READ, caches=("npm",))
    assert show(repo, f"{result.results[0].branch}:found.txt") == "good"


def test_changes_of_a_worker_are_not_shared(repo: Path, local_engine: LocalEngine) -> None:
    warmed(repo, local_engine)
    before = published(repo)
    evil = (
        'cd "$npm_config_cache" && echo evil > deep/a && ln -s /etc/passwd deep/link'
        " && mv deep moved && mkdir deep && echo evil > deep/a"
    )
    evil_run = shell_run(repo, local_engine, evil, READ, caches=("npm",), workers=1)
    assert [one.status for one in evil_run.results] == [Status.SUCCESS] * 2
    assert show(repo, f"{evil_run.results[1].branch}:found.txt") == "good"
    assert published(repo) == before
    for one in evil_run.results:
        assert one.log is not None
        assert not (Path(one.log) / "caches").exists()


def test_checks_find_the_published_cache(repo: Path, local_engine: LocalEngine) -> None:
    warmed(repo, local_engine)
    task = 'echo evil > "$npm_config_cache/deep/a"; touch done.txt'
    check = 'test "$(cat "$npm_config_cache/deep/a")" = good'
    result = shell_run(repo, local_engine, task, caches=("npm",), checks=({"run": check},))
    assert [one.passed for one in result.results[0].checks] == [True]


def test_cached_files_count_towards_the_disk_limit(repo: Path, local_engine: LocalEngine) -> None:
    task = 'head -c 40000000 /dev/urandom > "$npm_config_cache/big"; sleep 60'
    limits = Limits(disk=8 * 1024**2, grace=0.3)
    warmed(repo, local_engine)
    (result,) = shell_run(repo, local_engine, task, caches=("npm",), limits=limits).results
    assert result.reason is Reason.DISK


def test_links_are_copied_as_links(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    kept = tmp_path / "generation" / "npm"
    kept.mkdir(parents=True)
    (kept / "link").symlink_to(secret)
    caches = Caches(("npm",), generation=kept.parent)
    owner = (os.getuid(), os.getgid())
    for _ in range(2):  # the second call keeps existing files
        (mount,) = ready_caches(caches, tmp_path / "worker", owner, "bind")
        assert isinstance(mount, BindMount)
        assert (mount.source / "link").is_symlink()
        (mount.source / "own").touch()
    assert [path.name for path in kept.iterdir()] == ["link"]


@pytest.mark.parametrize("setup", [f"{FILL}; exit 1", f"{FILL}; kill -9 $$"])
def test_failed_setup_publishes_nothing(repo: Path, local_engine: LocalEngine, setup: str) -> None:
    assert warmed(repo, local_engine, setup) is Status.FAILED
    assert generations(Repository(repo)) == []


def test_new_generation_replaces_the_old(repo: Path, local_engine: LocalEngine) -> None:
    warmed(repo, local_engine)
    (first,) = generations(Repository(repo))
    warmed(repo, local_engine, FILL.replace("good", "better"))
    assert published(repo)["npm/deep/a"] == b"better\n"
    assert generations(Repository(repo)) != [first]


def test_resumed_run_keeps_its_generation(repo: Path, tmp_path: Path) -> None:
    repository, base = Repository(repo), git(repo, "rev-parse", "HEAD")
    place = repository.state_dir / "caches"
    (place / "1-aaaaaaaa" / "npm").mkdir(parents=True)
    first = find_caches(repository, base, ("npm",), tmp_path, warms=False)
    (place / "2-bbbbbbbb" / "npm").mkdir(parents=True)
    assert find_caches(repository, base, ("npm",), tmp_path, warms=False).lower("npm") == (
        place / "1-aaaaaaaa" / "npm"
    )
    assert first.notices == (
        "lock files changed since the caches were created: run `orchestrator cache warm`",
    )
    (place / "1-aaaaaaaa" / "npm").rmdir()
    (place / "1-aaaaaaaa").rmdir()
    again = find_caches(repository, base, ("npm", "uv"), tmp_path, warms=False)
    assert again.lower("npm") == place / "2-bbbbbbbb" / "npm"
    assert again.lower("uv") is None
    assert "nothing is cached for uv: run `orchestrator cache warm`" in again.notices


def test_generation_with_the_same_lock_files_is_preferred(
    repo: Path, tmp_path: Path, local_engine: LocalEngine
) -> None:
    warmed(repo, local_engine)
    repository = Repository(repo)
    (fitting,) = generations(repository)
    (repository.state_dir / "caches" / "9-00000000" / "npm").mkdir(parents=True)
    base = git(repo, "rev-parse", "HEAD")
    assert find_caches(repository, base, ("npm",), tmp_path, warms=False).generation == fitting
    (repo / "uv.lock").write_text("new\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "lock")
    (tmp_path / "cache").unlink()
    found = find_caches(repository, git(repo, "rev-parse", "HEAD"), ("npm",), tmp_path, warms=False)
    assert found.generation is not None
    assert found.generation.name == "9-00000000"
    assert len(found.notices) == 1


def test_only_regular_files_are_published(repo: Path, tmp_path: Path) -> None:
    root, outside = tmp_path / "worker", tmp_path / "outside"
    made = root / "caches" / "fresh" / "npm"
    (made / "locked").mkdir(parents=True)
    outside.write_text("kept")
    outside.chmod(0o600)
    (made / "link").symlink_to(outside)
    (made / "locked" / "program").touch(mode=0o700)
    (made / "locked").chmod(0o500)
    os.mkfifo(made / "fifo")
    repository, base = Repository(repo), git(repo, "rev-parse", "HEAD")
    for _ in range(2):  # repeated, as by a process that takes over the run
        publish(Caches(("npm",), warms=True), repository, base, "run", root)
    (newest,) = generations(repository)
    found = {path.name: path.lstat().st_mode & 0o777 for path in (newest / "npm").rglob("*")}
    assert found == {"link": 0o777, "locked": 0o700, "program": 0o700}
    assert {path.lstat().st_uid for path in newest.rglob("*")} == {shared_user()[0]}
    assert outside.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", ["overlay", "bind"])
@pytest.mark.skipif(os.getuid() != 0, reason="only root gives workers users of their own")
def test_cache_belongs_to_the_user_of_the_worker(tmp_path: Path, mode: Mode) -> None:
    made = tmp_path / "generation" / "npm"
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "a").write_text("package")
    for path in (made, *made.rglob("*")):
        os.chown(path, *shared_user())
    caches = Caches(("npm",), generation=made.parent)
    for user, copies in ((worker_user(7), True), (shared_user(), mode == "bind")):
        (mount,) = ready_caches(caches, tmp_path / f"worker-{user[0]}", user, mode)
        written, lower = (
            (mount.source, mount.source)
            if isinstance(mount, BindMount)
            else (mount.upper, mount.lower)
        )
        assert made not in (written, *written.parents), "the cache of all workers"
        assert {path.stat().st_uid for path in (lower, *lower.rglob("*"))} == {user[0]}
        assert (lower / "deep" / "a").read_text() == "package"
        assert (lower != made) is copies


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("npm", "_logs/2026.log"),
        ("npm", "_update-notifier-last-checked"),
        ("uv", "interpreter-v4/a/b.msgpack"),
        ("uv", "sdists-v9/.gitignore"),
        ("cargo", "registry/CACHEDIR.TAG"),
        ("pip", "cache/selfcheck/a.json"),
    ],
)
def test_empty_cache_is_not_published(
    repo: Path, tmp_path: Path, kind: CacheKind, left: str
) -> None:
    path = tmp_path / "caches" / "fresh" / kind / left
    path.parent.mkdir(parents=True)
    path.touch()
    repository, base = Repository(repo), git(repo, "rev-parse", "HEAD")
    with raises("cache.unfilled", kind):
        publish(Caches((kind,), warms=True), repository, base, "run", tmp_path)
    assert generations(repository) == []


def test_setup_that_downloads_nothing_fails(repo: Path, local_engine: LocalEngine) -> None:
    warmed(repo, local_engine)
    before = generations(Repository(repo))
    assert warmed(repo, local_engine, "true") is Status.FAILED
    assert generations(Repository(repo)) == before


@pytest.mark.parametrize(
    ("isolation", "access"),
    [
        ({"network": "none", "allow": ("a",)}, ("open", ("a",))),
        ({"network": "open", "setup_allow": ("a",)}, ("open", ("a",))),
        ({"network": "none", "setup_allow": ("a",)}, ("open", ("a",))),
        ({"network": "none", "setup_network": "open", "setup_allow": ("a",)}, ("open", ("a",))),
        ({"network": "allowlist", "allow": ("a",)}, ("allowlist", ("a",))),
        ({"network": "allowlist", "allow": ("*.b",), "setup_network": "none"}, ("open", ())),
    ],
)
def test_access_of_a_warming_run(isolation: dict[str, object], access: tuple[str, object]) -> None:
    config = configured("any", caches=("npm",), setup=("npm ci",))
    config = config.model_copy(update={"isolation": Isolation.model_validate(isolation)})
    found = warming_config(config).isolation
    assert (found.setup_network, found.setup_allow) == access
    assert (found.network, found.allow) == ("none", ())


def test_no_generation_is_removed_during_a_run(repo: Path, local_engine: LocalEngine) -> None:
    warmed(repo, local_engine)
    repository = Repository(repo)
    run = RunDirectory(repository.state_dir / "runs" / "20260101-000000-abcdef")
    run.path.mkdir()
    (run.path / "lease").touch()
    assert run.take_over()
    try:
        assert remove(repository) == []
        assert len(generations(repository)) == 1
    finally:
        run.release()
    half_gone = repository.state_dir / "caches" / ".of-a-dead-process"
    half_gone.mkdir()
    assert len(remove(repository)) == 1
    assert generations(repository) == []
    assert not half_gone.exists()


def test_package_managers_are_offline_without_a_network() -> None:
    kinds = ("pip", "npm", "uv", "cargo")
    places = {
        "PIP_CACHE_DIR": "/caches/pip/cache",
        "npm_config_cache": "/caches/npm",
        "UV_CACHE_DIR": "/caches/uv",
        "CARGO_HOME": "/caches/cargo",
    }
    assert environment(kinds, offline=False) == places
    assert environment(kinds, offline=True) == {
        **places,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "/caches/pip/wheels",
        "npm_config_offline": "true",
        "UV_OFFLINE": "1",
        "CARGO_NET_OFFLINE": "true",
    }


@pytest.mark.parametrize(
    ("project", "problem"),
    [
        ({"setup": ("true",)}, "no caches are configured"),
        ({"caches": ("pip",)}, "there is no `setup` command to fill the caches with"),
    ],
)
def test_warming_needs_caches_and_setup(project: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        warming_config(configured("any", **project))
    assert caught.value.message == problem


def test_setup_of_a_discovered_file_is_not_warmed() -> None:
    found = configured("any", caches=("npm",), setup=("npm ci",), closed_stages=("setup",))
    with raises("setup.untrusted") as caught:
        warming_config(found)
    assert "--config FILE" in (caught.value.hint or "")


def wheel(path: Path, info: str, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{info}/WHEEL", text)


def test_wheels_are_named_by_their_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache, wheels = tmp_path / "cache", tmp_path / "wheels"
    responses = cache / "http-v2" / "a"
    both = "Tag: py2-none-any\nTag: py3-none-any\n"
    wheel(responses / "1.body", "six-1.0.dist-info", both)
    wheel(responses / "2.body", "c-2.dist-info", "Build: 7\nTag: cp313-cp313-linux_x86_64\n")
    wheel(responses / "3.body", "../evil-1.dist-info", both)
    wheel(responses / "4.body", "evil 1.dist-info", both)
    wheel(responses / "5.body", "untagged-1.dist-info", "")
    (responses / "6.body").write_text("a page")
    wheel(cache / "wheels" / "b" / "made-1-py3-none-any.whl", "made-1.dist-info", both)
    monkeypatch.setattr(sys, "argv", ["pip_wheels", str(cache), str(wheels)])
    pip_wheels.main()
    names = {"six-1.0-py2.py3-none-any.whl", "c-2-7-cp313-cp313-linux_x86_64.whl"}
    names.add("made-1-py3-none-any.whl")
    assert {path.name for path in wheels.iterdir()} == names
    assert set(capsys.readouterr().out.split()) == names
