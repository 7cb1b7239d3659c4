"""Merge branches, with checks of the merged commits in containers."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.cli.output.messages import tell
from orchestrator.config.loading import load_settings
from orchestrator.config.run import ParallelConfig
from orchestrator.engine import load_engine
from orchestrator.errors import ConfigError
from orchestrator.git.repository import Repository
from orchestrator.landing.branches import RunBranches
from orchestrator.landing.merge import Merged, Wish, merge_branches
from orchestrator.landing.queue import Answer
from orchestrator.runs.commit_test import ContainerTest
from orchestrator.runs.runner import ParallelRunner

_MOST_AT_ONCE = 10


def merge_tested(
    repository: Repository,
    run: RunBranches,
    wish: Wish,
    *,
    checks: Sequence[str] | None,
    file: Path | None,
) -> Merged:
    """Merge branches in turn; the user's branch moves to the last commit that passes the checks.

    Args:
        repository: The user's repository.
        run: The run and its branches.
        wish: How the branches are merged.
        checks: Commands that must succeed. Default: the checks of the configuration.
        file: The configuration file that the user named.

    Raises:
        OrchestratorError: There are no checks, the engine cannot be reached, or the checks fail on
            the target itself.
    """
    commands = tuple(checks or ()) or _configured(repository, file)
    config = _config(repository, commands, file)
    engine = load_engine("docker")
    try:
        image = ParallelRunner(config, repository.top).plan().image
        test = ContainerTest(config, commands, repository.top, engine)

        def told(commit: str) -> Answer:
            answer = test(commit)
            said = {"pass": "passed", "fail": "failed", "none": "gave no answer"}[answer]
            tell(f"checks on {commit[:12]}: {said} (run {test.runs[-1] if test.runs else 'none'})")
            return answer

        identity = test.identity(engine.image_id(image) or image)
        return merge_branches(repository, run, replace(wish, test=told, tested_by=identity))
    finally:
        engine.close()


def _configured(repository: Repository, file: Path | None) -> tuple[str, ...]:
    config = _load(repository, {}, file, task_needed=False)
    if not config.project.checks:
        raise ConfigError(
            "`--queue` needs a check",
            hint="name a command that must succeed: `--check 'make test'`",
        )
    return tuple(check.run for check in config.project.checks)


def _config(repository: Repository, commands: Sequence[str], file: Path | None) -> ParallelConfig:
    workers = str(min(len(commands), _MOST_AT_ONCE))
    options = {"tasks": tuple(commands), "agent_cli": "shell", "workers": workers}
    return _load(repository, options, file, task_needed=True)


def _load(
    repository: Repository, options: Mapping[str, object], file: Path | None, *, task_needed: bool
) -> ParallelConfig:
    return load_settings(
        options=options,
        environ=os.environ,
        top=repository.top,
        file=file,
        task_needed=task_needed,
    ).config
