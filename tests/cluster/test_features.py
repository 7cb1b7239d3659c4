"""What runs do on one machine, done in pods by a user with the rights of the role."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import Lab
from tests.cluster.test_command import COMMAND, UNENFORCED, jobs, started
from tests.support.live import eventually
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SECRET, KEY = "hush-1234-hush", "key-99-of-an-agent"
WORKFLOW = """
tasks:
  - id: ui
    task: echo '- slow table' > "$ORCHESTRATOR_FINDINGS"; echo ui > ui
  - id: api
    task: echo 42 > "$ORCHESTRATOR_ARTIFACTS/measured"; echo api > api
  - id: both
    depends_on: [ui, api]
    task: cat ui api > both; cat "$ORCHESTRATOR_CONTEXT"
  - id: report
    reduce: [ui, api]
    task: cp "$ORCHESTRATOR_RESULTS" report.json
"""


def do(lab: Lab, repo: Path, *words: str, **env: str) -> tuple[int, str, str]:
    """Run a command of `orchestrator`; return its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        cwd=repo, text=True, capture_output=True, timeout=250,
        env={"PATH": os.environ["PATH"], "HOME": str(repo.parent), **env}
        | {"KUBECONFIG": str(lab.directory / "kubeconfig-runner")},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def run(lab: Lab, repo: Path, *words: str, **env: str) -> list[dict[str, Any]]:
    """Run workers, and return their results."""
    command = [*COMMAND[3:], *UNENFORCED, *words]
    _, out, err = do(lab, repo, *command, **env)
    assert out, err
    results: list[dict[str, Any]] = json.loads(out)["results"]
    return results


def test_setup_secrets_keys_checks_and_teardown(lab: Lab, repo: Path) -> None:
    task = (
        f'test "$(cat /run/secrets/TOKEN)" = {SECRET} && test "$KEY" = {KEY} && cat made > done; '
        "sleep 2; ls -l /run/secrets"
    )
    task = task.replace(SECRET, '"$WANTED"').replace(KEY, '"$EXPECTED"')
    settings = repo.parent / "settings.yaml"
    settings.write_text(
        json.dumps(
            {
                "setup": ["cat /run/secrets/TOKEN | wc -c > made"],
                "teardown": ["cat made"],
                "checks": ["test -s done", "test ! -e /run/secrets/TOKEN || grep -q 1 made"],
            }
        )
    )
    words = ("--config", str(settings), "--secret", "TOKEN", "--env", "KEY", "--env", "WANTED")
    env = {"TOKEN": SECRET, "KEY": KEY, "WANTED": SECRET, "EXPECTED": KEY}
    (result,) = run(lab, repo, *words, "--env", "EXPECTED", task, **env)
    assert result["status"] == "success", result
    assert [check["passed"] for check in result["checks"]] == [True, True]
    assert git(repo, "show", f"{result['branch']}:done") == str(len(SECRET))
    everything = lab.kubectl("get", "all,secrets,configmaps,events", "-A", "-o", "json")
    assert SECRET not in everything
    assert KEY not in everything
    kept = [path for path in (lab.directory / "etcd").rglob("*") if path.is_file()]
    assert not any(text.encode() in path.read_bytes() for path in kept for text in (SECRET, KEY))


def test_workflow_with_findings_artifacts_and_results(lab: Lab, repo: Path) -> None:
    (repo.parent / "review.yaml").write_text(WORKFLOW)
    words = [word for word in COMMAND[4:] if word not in ("--workers", "1")]
    code, out, err = do(
        lab, repo, "spec", "run", str(repo.parent / "review.yaml"), *words, *UNENFORCED
    )
    assert code == 0, err
    numbers = {1: "ui", 2: "api", 3: "both", 4: "report"}
    results = {numbers[result["worker_id"]]: result for result in json.loads(out)["results"]}
    assert git(repo, "show", f"{results['both']['branch']}:both") == "ui\napi"
    assert results["api"]["artifacts"] == ["measured"]
    (directory,) = (repo / ".git/orchestrator/runs").iterdir()
    assert "slow table" in (directory / "worker-3/stdout.log").read_text()
    report = json.loads(git(repo, "show", f"{results['report']['branch']}:report.json"))
    assert [entry["id"] for entry in report] == ["ui", "api"]
    eventually(lambda: not jobs(lab), "the Jobs' end")


EIGHT = """
tasks:
  - {id: a, task: echo a > a}
  - {id: b, task: echo b > b}
  - {id: c, depends_on: [a], task: cat a > c}
  - {id: d, depends_on: [a, b], task: cat a b > d}
  - {id: e, depends_on: [c], task: cat c > e}
  - {id: f, depends_on: [c, d], task: cat c d > f}
  - {id: g, depends_on: [b], task: cat b > g; exit 3}
  - {id: h, depends_on: [e, f], task: cat e f > h}
"""


def test_workflow_of_eight_tasks(lab: Lab, repo: Path) -> None:
    """A task gets the files of those that it depends on; one that fails stops nothing else."""
    (repo.parent / "eight.yaml").write_text(EIGHT)
    words = [word for word in COMMAND[4:] if word not in ("--workers", "1")]
    _, out, err = do(lab, repo, "spec", "run", str(repo.parent / "eight.yaml"), *words, *UNENFORCED)
    results = json.loads(out)["results"]
    assert len(results) == 8, err
    assert {each["worker_id"]: each["status"] for each in results} == {
        **dict.fromkeys(range(1, 9), "success"), 7: "failed",
    }  # fmt: skip
    branch = next(each["branch"] for each in results if each["worker_id"] == 8)
    assert git(repo, "show", f"{branch}:h") == "a\na\na\nb"
    eventually(lambda: not jobs(lab), "the Jobs' end")


def test_semantic_conflicts(lab: Lab, repo: Path) -> None:
    """Two branches merge cleanly, and only together fail the check, which runs in pods."""
    run(lab, repo, "--task", "echo 1 > one", "--task", "echo 1 > two", "--task", "echo 1 > bad")
    settings = repo.parent / "settings.yaml"
    settings.write_text(json.dumps({"container": {"allow_unenforced": UNENFORCED[1].split(",")}}))
    checks = ("--check", "test ! -e bad", "--check", "! test -e one -a -e two")
    code, out, err = do(lab, repo, "conflicts", *checks, "--config", str(settings), "--json")
    found = json.loads(out)
    kinds = {(pair["a"], pair["b"]): pair["kind"] for pair in found["pairs"]}
    assert {pair for pair, kind in kinds.items() if kind != "clean"} == {(1, 2)}, err
    assert (code, kinds[1, 2], found["failing"]) == (1, "semantic", [3])
    eventually(lambda: not jobs(lab), "the Jobs' end")


def test_retry_continue_and_judge(lab: Lab, repo: Path) -> None:
    good, bad = run(lab, repo, "--task", "echo 1 >> ok; cat ok", "--task", "echo 1 > bad")
    assert (good["status"], bad["status"]) == ("success", "success")
    settings = repo.parent / "settings.yaml"
    settings.write_text(json.dumps({"container": {"allow_unenforced": UNENFORCED[1].split(",")}}))
    words = ("--check", "test -e ok", "--config", str(settings), "--json")
    _, out, err = do(lab, repo, "judge", *words)
    ranking = json.loads(out)["ranking"]
    assert [(one["worker_id"], one["passes"]) for one in ranking] == [(1, True), (2, False)], err
    code, out, err = do(lab, repo, "continue", "1", "--message", "echo 1 >> ok", "--json")
    assert code == 0, err
    (result,) = json.loads(out)["results"]
    assert git(repo, "show", f"{result['branch']}:ok") == "1\n1"
    code, out, err = do(lab, repo, "retry", "2", "--json")
    assert code == 0, err
    (result,) = json.loads(out)["results"]
    assert git(repo, "show", f"{result['branch']}:bad") == "1"
    eventually(lambda: not jobs(lab), "the Jobs' end")


def test_command_in_a_running_worker(lab: Lab, repo: Path) -> None:
    process = started(lab, repo, "echo 1 > made; until [ -e go ]; do sleep 0.2; done")
    wait = "until [ -s made ]; do sleep 0.1; done"
    inside = ("exec", "1", "--", "sh", "-c", f"{wait}; cat made; pwd; echo out >&2; exit 5")
    done = eventually(
        lambda: (found := do(lab, repo, *inside))[0] == 5 and found, "a command in the pod"
    )
    assert done[1].splitlines() == ["1", "/workspace"]
    assert "out" in done[2]
    assert do(lab, repo, "exec", "1", "--", "touch", "go")[0] == 0
    out, err = process.communicate(timeout=200)
    (result,) = json.loads(out)["results"]
    assert result["status"] == "success", err
    assert do(lab, repo, "exec", "1", "--", "true")[0] != 0
