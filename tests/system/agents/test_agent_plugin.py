"""Tests of the adapter from the guide, installed as the guide says, in a real container."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from orchestrator.engine.images.names import BASE_IMAGE
from tests.docs.markdown import blocks
from tests.docs.session import matches, steps
from tests.support.plugin import install
from tests.system.agents.conftest import caller_environment, run_git

pytestmark = [pytest.mark.docker, pytest.mark.e2e]

GUIDE = "docs/guides/agent-adapter.md"
IMAGE = "acme/worker:1.0"
ACME = r"""#!/bin/sh
[ "$1 $2" = "run --" ] && [ "$ACME_API_KEY" ] || exit 2
mkdir .acme && echo log > .acme/log
echo "$3" > FIXED.md
case $3 in
    *tests*) echo '{"ok": true, "turns": 3, "said": "Fixed it"}' ;;
    *) echo '{"ok": false, "turns": 9, "said": "No idea"}' ;;
esac
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def acme_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image with a program that behaves as the guide says."""
    context = tmp_path_factory.mktemp("acme")
    (context / "acme").write_text(ACME)
    (context / "acme").chmod(0o755)
    (context / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\nCOPY acme /usr/local/bin/\n")
    client = docker.from_env()
    client.images.build(path=str(context), tag=IMAGE, rm=True)
    yield IMAGE
    client.images.remove(IMAGE)
    client.close()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with the guide's package installed."""
    texts = {block.language: block.text for block in blocks(GUIDE)}
    install(tmp_path / "site", texts["toml"], {"orchestrator_acme.py": texts["python"]})
    return tmp_path / "site"


@pytest.fixture
def run(shop: Path, tmp_path: Path, site: Path) -> Iterator[Run]:
    """A function that runs a shell command in the shop's repository."""
    env = {**caller_environment(tmp_path, "http://127.0.0.1:9"), "PYTHONPATH": str(site)}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"

    def call(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", command], cwd=shop, env=env, capture_output=True, text=True, check=False
        )

    yield call
    call("orchestrator parallel-cleanup --purge")


@pytest.mark.usefixtures("acme_image")
def test_plugin_works_as_the_guide_says(run: Run, shop: Path) -> None:
    shown = [step for block in blocks(GUIDE) for step in steps(block)]
    (step,) = (step for step in shown if "--agent-cli acme" in step.command)

    done = run(step.command)

    assert done.returncode == 0, done.stderr
    assert matches(step.expected, done.stdout)
    changed = run_git(shop, "diff", "--name-only", "main", "architect/parallel-1")
    assert changed == "FIXED.md\n"


@pytest.mark.usefixtures("acme_image")
@pytest.mark.extra
def test_failure_of_a_plugins_program_is_a_result(run: Run) -> None:
    done = run("ACME_API_KEY=k orchestrator parallel 'think' --agent-cli acme --workers 1 --json")

    assert done.returncode == 1
    for said in ('"reason": "agent_failed"', '"message": "No idea"', '"FIXED.md"', '"steps": 9'):
        assert said in done.stdout
    assert ".acme" not in done.stdout


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("--agent-cli acme", 4, "error: no API key: the default model needs `ACME_API_KEY`\n"),
        (
            "--agent-cli acme --budget-per-worker 1 --env ACME_API_KEY=key",
            3,
            "error: `acme` does not support `--budget-per-worker` (it does not report its cost)\n",
        ),
    ],
)
@pytest.mark.usefixtures("acme_image")
@pytest.mark.extra
def test_settings_that_a_plugin_refuses_are_errors(
    run: Run, command: str, code: int, said: str
) -> None:
    done = run(f"orchestrator parallel 'a task' --workers 1 {command}")

    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(said)


@pytest.mark.extra
def test_broken_plugin_is_reported_in_one_line(run: Run, site: Path) -> None:
    (site / "orchestrator_acme.py").write_text("import nosuch\n")

    done = run("orchestrator parallel 'a task' --workers 1 --agent-cli acme")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "error: the adapter for `acme` is broken: loading: ModuleNotFoundError: No module named "
        "'nosuch'\n\nhint: report this to the authors of the package `orchestrator-acme`, or "
        "remove it\n"
    )
