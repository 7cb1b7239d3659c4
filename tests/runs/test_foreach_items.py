"""Tests of `foreach` items from the run's commit and from commands, with real git."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.events import Emit, Event, WorkerStarted
from orchestrator.config.workflow.parsing.foreach import Source, batches
from orchestrator.runs.purposes.foreach_items import Expansion
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import branches, configured

GLOB = Source("glob", ("*.new",))


def test_glob_includes_uncommitted_files(repo: Path, local_engine: LocalEngine) -> None:
    (repo / "a.new").write_text("")
    (repo / ".gitignore").write_text("b.new\n")
    (repo / "b.new").write_text("")
    for carried, found in ((False, []), (True, ["a.new"])):
        config = configured("-", include_uncommitted=carried)
        expand = Expansion(config, repo, engine=local_engine).expand()
        assert expand(GLOB) == found
        assert expand(Source("command", ("ls *.new || true",))) == found
    assert "a.new" in git(repo, "status", "--porcelain")


def test_stopped_command_leaves_nothing_behind(
    repo: Path, tmp_path: Path, local_engine: LocalEngine
) -> None:
    slept = tmp_path / "slept"
    started, seen = threading.Event(), list[str]()

    def note(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            started.set()

    @contextmanager
    def watch(command: str) -> Iterator[Emit]:
        seen.append(command)
        yield note

    expansion = Expansion(configured("-"), repo, watch=watch, engine=local_engine)
    expand = expansion.expand()
    threading.Thread(target=lambda: (started.wait(30), expansion.cancel())).start()
    with raises("foreach.stopped"):
        expand(Source("command", (f"sleep 50; touch {slept}",)))
    assert not slept.exists()
    with raises("foreach.stopped"):
        expand(Source("command", ("echo 1",)))
    assert seen == [f"sleep 50; touch {slept}", "echo 1"]
    assert branches(repo) == []
    assert not [path.name for path in repo.iterdir() if path.name.startswith(".architect")]


@pytest.mark.parametrize(("command", "end"), [("git ls-files d", ""), ("git ls-files -z d", "\n")])
def test_names_that_git_prints_are_files(
    repo: Path, local_engine: LocalEngine, command: str, end: str
) -> None:
    names = ["d/caf\u00e9.txt", "d/\u7814\u7a76.py", "d/two words", f"d/sep\u2028arated{end}"]
    (repo / "d").mkdir()
    for name in names:
        (repo / name).write_text("")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "names")
    expand = Expansion(configured("-"), repo, engine=local_engine).expand()
    assert sorted(expand(Source("command", (command,))) or ()) == sorted(names)


def test_item_that_is_not_utf8_is_refused(repo: Path, local_engine: LocalEngine) -> None:
    expand = Expansion(configured("-"), repo, engine=local_engine).expand()
    items = expand(Source("command", ("printf 'a\\377b\\n'",)))
    with pytest.raises(ConfigError, match="not valid Unicode"):
        batches(items or (), 1)
