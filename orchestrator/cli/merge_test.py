"""Merge branches, with checks of the merged commits in containers."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path

from orchestrator.cli.check_settings import configured_checks, settings_of_checks
from orchestrator.cli.output.messages import tell
from orchestrator.config.run import ParallelConfig
from orchestrator.engine import load_engine
from orchestrator.errors import ConfigError
from orchestrator.git.repository import Repository
from orchestrator.judging.check_run import Tests
from orchestrator.judging.protected import Protection
from orchestrator.landing.branches import RunBranches
from orchestrator.landing.merge import Wish, merge_branches
from orchestrator.landing.merged import Merged
from orchestrator.landing.queue import Answer, CommitTest
from orchestrator.landing.target import find_target
from orchestrator.runs.commit_test import ContainerTest
from orchestrator.runs.runner import ParallelRunner

_MOST_AT_ONCE = 10


@dataclass(frozen=True, kw_only=True)
class QueueTest:
    """How the commits of a queue are tested."""

    checks: Sequence[str] | None
    """Commands that must succeed. Default: the checks of the configuration."""
    tests: Tests
    """Whose tests count."""
    file: Path | None
    """The configuration file that was named."""


def merge_tested(repository: Repository, run: RunBranches, wish: Wish, wanted: QueueTest) -> Merged:
    """Merge branches, and land the last commit on which the checks pass.

    Args:
        repository: The user's repository.
        run: The run and its branches.
        wish: How the branches are merged.
        wanted: How the commits are tested.

    Raises:
        OrchestratorError: There are no checks, the engine cannot be reached, or the checks fail
            on the target branch before the merge.
    """
    commands = tuple(wanted.checks or ()) or _configured(repository, wanted.file)
    config = _config(repository, commands, wanted.file)
    target = find_target(repository, wish.into).commit
    protection = Protection(repository, target, wanted.tests, run.began)
    with closing(load_engine("docker")) as engine:
        image = ParallelRunner(config, repository.top).plan().image
        test = ContainerTest(config, commands, repository.top, engine, ParallelRunner)
        identity = dumps([test.identity(engine.image_id(image) or image), *protection.identity])
        tested = _tested(test, protection)
        return merge_branches(repository, run, replace(wish, test=tested, tested_by=identity))


def _tested(test: ContainerTest, protection: Protection) -> CommitTest:
    """Return a test of a commit, first with the target's tests, then as the commit is."""

    def tested(commit: str) -> Answer:
        protected = protection.of(commit)
        if protected != commit:
            answer = told(protected, f"{commit[:12]} with the target's tests")
            if answer != "pass":
                return answer
        return told(commit, commit[:12])

    def told(commit: str, name: str) -> Answer:
        answer = test(commit)
        said = {"pass": "passed", "fail": "failed", "none": "gave no answer"}[answer]
        tell(f"checks on {name}: {said} (run {test.runs[-1] if test.runs else 'none'})")
        return answer

    return tested


def _configured(repository: Repository, file: Path | None) -> tuple[str, ...]:
    checks = configured_checks(repository, file)
    if not checks:
        raise ConfigError(
            "`--queue` needs a check",
            hint="name a command that must succeed: `--check 'make test'`",
        )
    return checks


def _config(repository: Repository, commands: Sequence[str], file: Path | None) -> ParallelConfig:
    workers = min(len(commands), _MOST_AT_ONCE)
    return settings_of_checks(repository, commands, file, workers=workers)
