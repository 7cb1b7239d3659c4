"""Help, version and completion scripts import only what they print."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.local_engine import LocalEngine
from tests.support.runs import past_run

LARGE = {"pydantic", "docker", "rich", "yaml", "humanize", "importlib.metadata"}
"""Modules whose import takes longer than the rest of `orchestrator parallel --help`."""
PROGRAM = """
import sys
from orchestrator.faces.cli.app import run
code = run(sys.argv[1:])
loaded = " ".join(sorted(sys.modules))
sys.stderr.write(loaded)
sys.exit(code)
"""


def loaded(*arguments: str, where: Path, **environ: str) -> set[str]:
    """Return the modules that a command line has imported at its end."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=where, env={**os.environ, **environ}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--help",), ("--version",)),
        *(("parallel", "--help"), ("run-one", "--help"), ("run", "--help")),
    ],
)
def test_help_imports_no_large_module(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert not loaded(*arguments, where=tmp_path) & LARGE


def test_completion_script_imports_no_large_module(tmp_path: Path) -> None:
    modules = loaded("completion", "bash", where=tmp_path)
    # The names of agent programs are in the metadata; pydantic checks the name of the shell.
    assert not modules & (LARGE - {"importlib.metadata", "pydantic"})


@pytest.fixture
def one_run(repo: Path, local_engine: LocalEngine) -> Path:
    """A repository with one ended run."""
    past_run(repo, local_engine, "true")
    return repo


@pytest.mark.parametrize("arguments", [("ls",), ("ls", "--all")])
def test_a_list_without_runs_imports_no_large_module(
    repo: Path, arguments: tuple[str, ...]
) -> None:
    assert not loaded(*arguments, where=repo) & LARGE


@pytest.mark.variants("arguments1")
@pytest.mark.parametrize("arguments", [("ls",), ("ls", "--all"), ("ls", "--json")])
def test_a_list_of_runs_imports_neither_settings_nor_the_engine(
    one_run: Path, arguments: tuple[str, ...]
) -> None:
    modules = loaded(*arguments, where=one_run)
    assert "orchestrator.state.record.listing" in modules
    assert not modules & {
        "orchestrator.config.settings.run",
        "orchestrator.config.workflow.model",
        "docker",
    }


@pytest.mark.docker
def test_a_cleanup_without_dead_runs_imports_nothing_that_runs_workers(one_run: Path) -> None:
    modules = loaded("parallel-cleanup", "--dry-run", where=one_run)
    assert "orchestrator.runs.cleanup.remove" in modules
    assert not modules & {
        "orchestrator.worker.context", "orchestrator.worker.harvest.harvest", "yaml", "humanize",
        "orchestrator.runs.cleanup.restore", "orchestrator.state.record.listing",
    }  # fmt: skip


def test_a_run_that_is_not_watched_on_a_terminal_draws_no_table(repo: Path) -> None:
    modules = loaded("parallel", "true", "--agent-cli", "shell", "--dry-run", where=repo)
    assert not modules & {"rich.console", "humanize"}


RARE = {
    "yaml", "tomllib", "configparser", "rich.console", "humanize",
    "orchestrator.runs.reports", "orchestrator.review.judging", "orchestrator.review.landing",
    "orchestrator.faces.web",
    "orchestrator.runs.cleanup.remove", "orchestrator.state.record.listing",
    "orchestrator.engine.docker.gateway", "orchestrator.engine.images.project",
    "orchestrator.runs.planning.dry_run", "orchestrator.runs.resuming.detach",
    "orchestrator.runs.notify.webhooks",
}  # fmt: skip
"""Modules that a run needs only with a file or an option that most runs do not have."""
MOST_MODULES = 326
"""Maximum number of our own modules that a run of one worker imports."""


@pytest.mark.docker
def test_a_run_imports_only_what_it_needs(repo: Path) -> None:
    modules = loaded(
        *("parallel", "true", "--agent-cli", "shell", "--network", "none", "--workers", "1"),
        *("--summary", "--quiet"),
        where=repo,
        GITHUB_ACTIONS="",
        GITLAB_CI="",
    )
    assert not modules & RARE
    assert len([name for name in modules if name.startswith("orchestrator.")]) <= MOST_MODULES
