"""Tests that a run is refused if the engine does not enforce a limit, unless the user allows it."""

from pathlib import Path

import pytest

from orchestrator.base.errors import UnsupportedError
from orchestrator.base.events import Notice
from orchestrator.base.results import Status
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.runs.planning import enforcement
from orchestrator.runs.runner import ParallelRunner
from tests.support.answering_engine import AnsweringEngine, answer
from tests.support.errors import raises
from tests.support.repository import fingerprint
from tests.support.runs import configured

UNSOUND = answer(swap=False, pids=False)


def allowing(*limits: str, **rest: object) -> ParallelConfig:
    return configured("true", isolation=Isolation(network="none", allow_unenforced=limits, **rest))


def probes(repo: Path) -> list[Path]:
    return sorted((repo / ".git/orchestrator/probes").glob("*"))


@pytest.fixture
def engine(tmp_path: Path) -> AnsweringEngine:
    return AnsweringEngine(tmp_path / "engine")


def test_run_without_an_enforced_limit_is_refused(repo: Path, engine: AnsweringEngine) -> None:
    engine.text, before = UNSOUND, fingerprint(repo)
    with raises("limits.unenforced", "local 1", ": `swap`") as caught:
        ParallelRunner(allowing("pids"), repo, engine=engine).execute()
    assert caught.value.exit_code == 3
    assert "`swapaccount=1`" in (caught.value.hint or "")
    # Limits that are allowed already are named again: the user replaces the option.
    assert "`--allow-unenforced swap,pids`" in (caught.value.hint or "")
    assert fingerprint(repo) == before
    assert engine.leftovers({}) == []


def test_cheap_checks_come_before_containers(repo: Path, engine: AnsweringEngine) -> None:
    engine.text = UNSOUND
    with raises("worktrees.exhausted"):
        ParallelRunner(configured("true", "true", max_worktrees=1), repo, engine=engine).execute()
    assert engine.asked == []


@pytest.mark.parametrize("reached", ["", "tcp:10.0.0.1:443"])
def test_network_counts_as_enforced_if_the_engine_proves_it(
    repo: Path, engine: AnsweringEngine, reached: str
) -> None:
    engine.features["enforced"] = {"memory": "kernel", "network": "no"}
    asked: list[tuple[str, frozenset[str]]] = []

    def prove_network(repository: str, networks: frozenset[str]) -> str:
        asked.append((repository, networks))
        return reached

    engine.prove_network = prove_network  # type: ignore[attr-defined]
    runner = ParallelRunner(allowing(), repo, engine=engine)
    if reached:
        with raises("limits.unenforced", "`network`", reached):
            runner.execute()
    else:
        assert runner.execute().results[0].limits_unenforced == []
    assert asked == [(str(repo / ".git"), {"none"})]
    (result,) = ParallelRunner(allowing("network"), repo, engine=engine).execute().results
    assert result.limits_unenforced == ["network"]
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("allowed", "named", "asked"),
    [
        ((), "tmp,swap", False),
        (("swap",), "tmp,swap", False),
        (("swap", "network"), "tmp,swap,network", False),
        (("tmp", "swap"), "tmp,swap,network", True),
    ],
)
def test_hint_names_every_limit_and_only_what_is_left_is_tested(
    repo: Path, engine: AnsweringEngine, allowed: tuple[str, ...], named: str, asked: bool
) -> None:
    engine.features["enforced"] = {"memory": "kernel", "tmp": "no", "swap": "no", "network": "no"}
    proofs = list[str]()

    def prove_network(repository: str, _: frozenset[str]) -> str:
        proofs.append(repository)
        return "tcp:10.0.0.1:443"

    engine.prove_network = prove_network  # type: ignore[attr-defined]
    with raises("limits.unenforced", f"`--allow-unenforced {named}`"):
        ParallelRunner(allowing(*allowed), repo, engine=engine).execute()
    assert bool(proofs) is asked


def test_hint_names_the_setting_of_systemd(repo: Path, engine: AnsweringEngine) -> None:
    engine.text = answer(memory=False, cpus=False)
    with pytest.raises(UnsupportedError) as caught:
        ParallelRunner(allowing(), repo, engine=engine).execute()
    assert (caught.value.hint or "").count("`Delegate=cpu cpuset io memory pids`") == 1


def test_allowed_limits_are_named_in_the_results(repo: Path, engine: AnsweringEngine) -> None:
    engine.text, said = UNSOUND, list[str]()
    runner = ParallelRunner(
        allowing("pids", "swap", "network"), repo, engine=engine,
        emit=lambda event: said.append(event.message) if isinstance(event, Notice) else None,
    )  # fmt: skip
    (result,) = runner.execute().results
    assert (result.status, result.limits_unenforced) == (Status.SUCCESS, ["swap", "pids"])
    assert "the engine does not enforce these limits: `swap`, `pids`" in said


def test_a_limit_that_was_not_tested_is_not_refused(repo: Path, engine: AnsweringEngine) -> None:
    engine.text = '{"memory": true}'
    (result,) = ParallelRunner(allowing(), repo, engine=engine).execute().results
    assert (result.status, result.limits_unenforced) == (Status.SUCCESS, [])


def proven_twice(repo: Path, engine: AnsweringEngine, runtimes=(None, None)) -> int:
    for runtime in runtimes:
        ParallelRunner(allowing(runtime=runtime), repo, engine=engine).execute()
    return len(engine.asked)


def test_a_sound_engine_is_tested_once(repo: Path, engine: AnsweringEngine) -> None:
    assert proven_twice(repo, engine) == 1
    assert [path.name for path in probes(repo)] == ["THE_ID.json"]


def test_each_runtime_is_tested(repo: Path, engine: AnsweringEngine) -> None:
    assert proven_twice(repo, engine, (None, "process")) == 2
    assert [spec.runtime for spec in engine.asked] == [None, "process"]


def test_default_runtime_with_its_own_kernel_is_tested_as_such(
    repo: Path, engine: AnsweringEngine
) -> None:
    engine.features |= {"default_runtime": "process"}
    assert proven_twice(repo, engine) == 1
    assert [spec.runtime for spec in engine.asked] == ["process"]


def test_an_engine_without_an_identity_is_tested_each_time(
    repo: Path, engine: AnsweringEngine
) -> None:
    engine.features |= {"id": "", "fingerprint": ""}
    assert proven_twice(repo, engine) == 2
    assert probes(repo) == []


@pytest.mark.parametrize("change", ["fingerprint", "version", "boot", "program"])
def test_another_engine_or_start_is_tested_again(
    repo: Path, engine: AnsweringEngine, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    proven_twice(repo, engine)
    if change == "boot":
        monkeypatch.setattr(enforcement, "boot_id", lambda: "another")
    elif change == "program":
        monkeypatch.setattr(enforcement, "program", lambda: "more questions")
    else:
        engine.features[change] = "another"
    engine.text = UNSOUND
    with pytest.raises(UnsupportedError):
        ParallelRunner(allowing(), repo, engine=engine).execute()


def test_an_engine_that_was_repaired_is_tested_again(repo: Path, engine: AnsweringEngine) -> None:
    engine.text = UNSOUND
    with pytest.raises(UnsupportedError):
        ParallelRunner(allowing(), repo, engine=engine).execute()
    assert probes(repo) == []
    engine.text = answer()
    assert proven_twice(repo, engine) == 2


@pytest.mark.parametrize("kind", ["text", "link", "large", "directory"])
def test_a_file_of_another_form_is_not_believed(
    repo: Path, engine: AnsweringEngine, tmp_path: Path, kind: str
) -> None:
    proven_twice(repo, engine)
    (place,) = probes(repo)
    known = place.read_text()
    place.unlink()
    if kind == "text":
        place.write_text("{")
    elif kind == "link":
        (tmp_path / "known").write_text(known)
        place.symlink_to(tmp_path / "known")
    elif kind == "large":
        place.write_text(known + " " * 100_000)
    else:
        place.mkdir()
    proven_twice(repo, engine, (None,))
    assert len(engine.asked) == 2
