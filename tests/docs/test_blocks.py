"""Tests that run every command of the documentation as it is written."""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from orchestrator.base.results import RunResult, WorkerResult
from orchestrator.config.loading.loading import json_schema, load_config
from orchestrator.config.workflow.parsing.dialects import json_schema as manifest_schema
from orchestrator.config.workflow.parsing.reader import read_workflow
from tests.docs.markdown import ROOT, Block, blocks, pages
from tests.docs.session import Step, run_session, steps
from tests.support import local_program
from tests.support.bridge import bridge_gateway
from tests.support.cli import learn_of_overlays, spare_probe
from tests.support.fork_program import fork_program
from tests.support.model_script import Rule, Scenario, ToolCall, Turn
from tests.support.model_server import ModelServer
from tests.system.agents.conftest import caller_environment

LANGUAGES = {"console", "sh", "python", "yaml", "json", "toml", "text"}
COMMANDS = ("console", "sh", "python", "yaml")

IN_CONTAINERS = {
    "README.md",
    "docs/getting-started.md",
    "docs/guides/agent-adapter.md",
    "docs/guides/images.md",
    "docs/guides/untrusted-tasks.md",
    "docs/guides/updating-images.md",
}
"""Pages that `make test` runs in containers; `make variants` runs every page in them."""
WITHOUT_CONTAINERS = {
    "docs/concepts/results.md",
    "docs/guides/ci.md",
    "docs/guides/cleanup.md",
    "docs/guides/company-network.md",
    "docs/guides/landing.md",
    "docs/guides/ports-and-services.md",
    "docs/guides/rate-limits.md",
    "docs/guides/second-round.md",
    "docs/guides/shards.md",
    "docs/guides/web-view.md",
    "docs/guides/worktrees.md",
    "docs/reference/cli.md",
    "docs/reference/configuration.md",
    "docs/reference/errors.md",
    "docs/reference/python-api.md",
    "docs/troubleshooting.md",
    "skills/orchestrator/SKILL.md",
}
"""Pages that `make test` runs with processes in place of containers."""
COVERED: Mapping[str, tuple[str, str]] = {
    "make setup": ("tests/engine/test_setup_script.py", "setup-engine.sh"),
    "make demo": ("tests/system/agents/test_demo.py", "demo.py"),
    "make test": (".ci/run", "make test"),
    "make check": (".ci/run", "make check"),
    "make test-fast": ("Makefile", "-m fast"),
    "make test-lowest": ("Makefile", "build/lowest/bin/python -m pytest -m fast"),
    "make test-all": ("Makefile", "test-all: test variants agents"),
    "make variants": ("Makefile", "--every-variant"),
    "make agents": ("Makefile", "-m agents"),
    "make attacks": ("Makefile", "--every-caller tests/assurance/attacks"),
    ".venv/bin/python docs/demo/record.py": ("tests/system/agents/test_demo.py", "record.py"),
    "make docs": ("tests/docs/test_site.py", '"mkdocs", "build"'),
    "make validators": ("Makefile", "tests/system/registry_validators.py"),
    "make engines": ("Makefile", "tests/system/other_engines.py"),
    "make bench": ("Makefile", "tests/bench/all.py $(PARTS)"),
    # Measurements take minutes, and are useless on a busy machine.
    **{
        f".venv/bin/python tests/bench/{command}": (f"tests/bench/{command.split()[0]}", "main()")
        for command in (
            "all.py --write",
            "all.py tasks history",
            "all.py peers",
            "bench_history.py --checkout ../other",
            "bench_repository.py --rounds 3",
            "bench_shapes.py --rounds 3",
            "bench_growth.py --worktrees none",
        )
    },
    'ACME_API_KEY=... orchestrator parallel "fix the tests" --agent-cli acme --workers 1 --quiet': (
        "tests/system/agents/test_agent_plugin.py",
        'GUIDE = "docs/guides/agent-adapter.md"',
    ),
    ".venv/bin/python docs/check.py --write": ("tests/docs/test_pages.py", '["--write"]'),
    'orchestrator parallel "optimize the project\'s SQL queries" '
    "--models gpt-4o,claude-sonnet-4-6,deepseek-chat": (
        "tests/system/agents/test_seed_examples.py",
        "--models gpt-4o,claude-sonnet-4-6,deepseek-chat",
    ),
    'orchestrator parallel --task "add tests to src/auth.py" --task "add tests to src/users.py" '
    '--task "add tests to src/billing.py" --workers 3': (
        "tests/system/agents/test_seed_examples.py",
        '--task "add tests to src/billing.py" --workers 3',
    ),
    'orchestrator parallel --task "refactor payments module" --task "refactor users module" '
    "--workers 2 --budget-per-worker 2.0 --timeout-per-worker 300": (
        "tests/system/agents/test_seed_examples.py",
        "--workers 2 --budget-per-worker 2.0 --timeout-per-worker 300",
    ),
    "orchestrator continue 1 --from-pr --yes --watch 3": (
        "tests/runs/test_feedback.py",
        '"--watch"',
    ),
    "orchestrator continue 1 --from-ci build.log --yes": (
        "tests/runs/test_feedback.py",
        '"--from-ci", str(log), "--yes"',
    ),
    "orchestrator image build --agent claude": ("tests/system/test_agent_images.py", '"claude": ('),
    "orchestrator image build --agent claude --from .": (
        "tests/system/test_project_images.py",
        '"--from", str(shop)',
    ),
}
"""Commands that another file runs: the file, and its text that runs the command."""

ANSWER = ToolCall(name="write_file", arguments={"path": "NOTES.md", "content": "Three modules.\n"})
SCENARIO = Scenario((Rule(turns=(Turn(calls=(ANSWER,)), Turn(text="Wrote NOTES.md."))),))


def _plain(command: str) -> str:
    return " ".join(command.replace("\\\n", " ").split())


def _session(page: str, *python: str) -> list[Step]:
    return [
        step
        for block in blocks(page)
        for step in steps(block, *python)
        if _plain(step.command) not in COVERED and not _is_pytest(step)
    ]


def _is_pytest(step: Step) -> bool:
    return step.command.startswith(".venv/bin/pytest")


ALL = [block for page in pages() for block in blocks(page)]


def _of(*languages: str) -> list[object]:
    return [pytest.param(b, id=b.place) for b in ALL if b.language in languages]


@pytest.mark.parametrize("block", [pytest.param(b, id=b.place) for b in ALL])
def test_every_block_has_a_known_language(block: Block) -> None:
    assert block.language in LANGUAGES


@pytest.mark.docker
@pytest.mark.e2e
@pytest.mark.parametrize(
    "page",
    [
        page if page in IN_CONTAINERS else pytest.param(page, marks=pytest.mark.extra)
        for page in pages()
        if _session(page)
    ],
)
def test_commands_of_a_page_print_what_it_says(page: str, tmp_path: Path, shop: Path) -> None:
    # The commands of one page run the installed program, not a fork.
    first = [] if page == "README.md" else [str(tmp_path / "forks")]
    spare_probe(shop)
    with ModelServer(SCENARIO, host=bridge_gateway()) as server, fork_program(tmp_path / "forks"):
        env = _environment(tmp_path, server.url, first)
        problems = run_session(
            _session(page), repository=shop, scratch=tmp_path / "session", env=env
        )
        learn_of_overlays(shop)
        cleanup = ["orchestrator", "parallel-cleanup", "--purge"]
        subprocess.run(cleanup, cwd=shop, env=env, check=True, capture_output=True)
    if problems:
        pytest.fail("\n\n".join(problems), pytrace=False)


@pytest.mark.parametrize("page", sorted(WITHOUT_CONTAINERS))
def test_commands_of_a_page_print_what_it_says_without_containers(
    page: str, tmp_path: Path, shop: Path
) -> None:
    """The same commands; each container is a process of the local engine."""
    forks, nowhere = tmp_path / "forks", "http://127.0.0.1:9"
    with fork_program(forks, "tests.support.local_program"):
        env = _environment(tmp_path, nowhere, [str(forks)])
        env |= {
            local_program.FOLDER: str(tmp_path / "engine"),
            "DOCKER_HOST": os.environ["DOCKER_HOST"],
        }
        problems = run_session(
            _session(page, f"orchestrator {local_program.PYTHON}"),
            repository=shop,
            scratch=tmp_path / "session",
            env=env,
        )
    if problems:
        pytest.fail("\n\n".join(problems), pytrace=False)


def _environment(home: Path, model: str, first: list[str]) -> dict[str, str]:
    """Return the environment of a page's commands, with programs that are found first."""
    env = {**caller_environment(home, model), "COLUMNS": "240"}
    env["PATH"] = os.pathsep.join([*first, str(Path(sys.executable).parent), env["PATH"]])
    return {**env, "PYTHONPATH": str(ROOT), "RUNNER_TEMP": str(home)}


def _uses_the_action(document: Mapping[str, Any]) -> bool:
    """Return whether a job uses the action of this project, with inputs that it has."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    found = [step for job in document["jobs"].values() for step in job["steps"]]
    used = [step for step in found if step["uses"].startswith("OWNER/orchestrator@")]
    return bool(used) and all(step["with"].keys() <= action["inputs"].keys() for step in used)


@pytest.mark.parametrize("block", _of("yaml"))
def test_configuration_blocks_are_valid(block: Block, tmp_path: Path) -> None:
    document = yaml.safe_load(block.text)
    if isinstance(document, list) or "jobs" in document:
        assert list(steps(block)) or _uses_the_action(document), "a CI job runs something"
        return
    if "include" in document:
        return  # a recipe for GitLab: see tests/system/test_recipes.py
    file = tmp_path / "orchestrator.yaml"
    file.write_text(block.text)
    if {"tasks", "stages"} & {*document}:
        assert read_workflow(file).workflow.tasks
        Draft202012Validator(manifest_schema()).validate(document)
        return

    # Services, clusters, allow-lists and a company's servers are only accepted from a named file.
    container = document.get("container", {})
    needs_name = {"services", "cluster"} & {*document} or {"allow", "company"} & {*container}
    named = file if needs_name else None
    config = load_config(options={"tasks": ("a task",)}, environ={}, top=tmp_path, file=named)

    assert config.tasks
    Draft202012Validator(json_schema()).validate(document)


@pytest.mark.parametrize("block", _of("json"))
def test_result_blocks_are_valid(block: Block) -> None:
    document = json.loads(block.text)

    parsed = (RunResult if "results" in document else WorkerResult).model_validate(document)

    assert parsed.status


@pytest.mark.parametrize("block", _of("toml"))
def test_toml_blocks_are_valid(block: Block) -> None:
    assert tomllib.loads(block.text)


@pytest.mark.parametrize("command", COVERED)
def test_commands_run_by_other_tests_are_in_the_documentation(command: str) -> None:
    found = [step for page in pages() for b in blocks(page) for step in steps(b)]
    file, words = COVERED[command]

    assert command in {_plain(step.command) for step in found}
    assert words in " ".join((ROOT / file).read_text().replace("\\\n", " ").split())


PYTEST = sorted({s.command for p in pages() for b in blocks(p) for s in steps(b) if _is_pytest(s)})


@pytest.mark.parametrize("command", PYTEST)
def test_pytest_selections_of_a_page_select_tests(command: str) -> None:
    arguments = shlex.split(command)[1:]
    # A file with tests of several kinds: collecting all tests takes a minute of CPU time.
    is_named = any(Path(ROOT, word).is_dir() for word in arguments)
    folder = [] if is_named else ["tests/engine/test_enter.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments, *folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
