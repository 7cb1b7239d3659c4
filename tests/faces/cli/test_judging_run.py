"""Tests of how options and the configuration become rules and settings of checks."""

from pathlib import Path

from orchestrator.config.derived import for_checks
from orchestrator.config.settings.container import Limits
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.cli.judging_run import read_rules
from orchestrator.repository.repository import Repository


def test_instruments_are_a_setting(repo: Path) -> None:
    (repo / "orchestrator.yaml").write_text(
        "checks: [make test]\njudge: {instruments: ['ci/*.sh']}\n"
    )
    repository = Repository(repo)
    rules = read_rules(repository, {}, None, None)
    assert (rules.checks, rules.instruments) == (("make test",), ("ci/*.sh",))
    rules = read_rules(repository, {"instruments": ("*.sql",)}, None, None)
    assert rules.instruments == ("*.sql",)


def test_checks_run_with_the_image_and_limits_of_the_candidates() -> None:
    config = ParallelConfig(
        tasks=("do it",),
        agent_cli="claude",
        models=("a", "b"),
        image="mine",
        limits=Limits(memory="256m"),
    )
    checks = for_checks(config, ("make test", "make lint"))
    assert (checks.image, checks.limits) == ("mine", config.limits)
    assert (checks.tasks, checks.agent_cli, checks.models) == (
        ("make test", "make lint"), "shell", (),
    )  # fmt: skip
