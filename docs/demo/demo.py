"""Run three models in three workers: real agents in real containers, without an API key.

`make demo` runs this program. It creates a repository from `sample/`, runs `orchestrator parallel`,
and checks the result. A server on this machine answers for the models from `scenario.json`.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TIMEOUT = "40"
"""Timeout of a worker in seconds; the program takes another number as its argument."""
COMMAND = (
    'parallel "optimize the project\'s SQL queries"'
    f" --models gpt-4o,claude-sonnet-4-6,deepseek-chat --timeout-per-worker {TIMEOUT} --grace 2"
)
EXPECTED_FILES = {
    "architect/parallel-1": {"src/users.py"},
    "architect/parallel-2": {"src/billing.py", "src/schema.sql"},
    "architect/parallel-3": {"docs/queries.md"},
}
ONLY_TIMEOUTS = 5
"""Exit code of a run whose failures are all timeouts: worker 3 is slow on purpose."""
SIGNALLED = 128
"""Exit codes above this number mean that a signal ended the run."""
NEXT = """\
The repository is yours to look at: {repository}

    cd {repository}
    git -C .architect-parallel-1 show
    git diff main architect/parallel-2
    {orchestrator} parallel-cleanup
"""


def main() -> int:
    """Run the demo; return 0 if the result is as expected."""
    # Ctrl-C also reaches `orchestrator`, which stops its containers; this process waits for it.
    signal.signal(signal.SIGINT, lambda *_: None)
    with model_server() as url:
        repository = make_repository()
        code = run_workers(repository, url, sys.argv[1] if len(sys.argv) > 1 else TIMEOUT)
    if not git_lines(repository, "branch", "--list", "architect/*"):
        shutil.rmtree(repository)
        return code  # No worker was started; the reason was printed.
    show_branches(repository)
    interrupted = code > SIGNALLED
    problems = [] if interrupted else list(find_problems(repository, code))
    if code == ONLY_TIMEOUTS and not problems:
        print("Worker 3's timeout is intended: its model is slow on purpose.\n")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if problems:
        print(f"\nhint: workers must be able to reach {url}; see their logs", file=sys.stderr)
    print(NEXT.format(repository=repository, orchestrator=shown_command()))
    if interrupted:
        return code
    return 1 if problems else 0


def make_repository() -> Path:
    """Create a repository with one commit from the sample."""
    repository = Path(tempfile.mkdtemp(prefix="orchestrator-demo-"))
    shutil.copytree(
        HERE / "sample",
        repository,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    git(repository, "init", "--quiet", "--initial-branch", "main")
    git(repository, "config", "user.name", "Demo")
    git(repository, "config", "user.email", "demo@localhost")
    git(repository, "config", "commit.gpgsign", "false")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "A corner shop")
    return repository


@contextlib.contextmanager
def model_server() -> Iterator[str]:
    """Serve the scenario at an address that containers can reach, and yield the URL."""
    command = [sys.executable, "-m", "tests.support.model_server", str(HERE / "scenario.json")]
    with subprocess.Popen(
        [*command, "--host", "bridge"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            sys.exit("\nhint: the demo needs a Docker daemon on this machine; try `docker info`")
        try:
            yield url
        finally:
            process.terminate()


def run_workers(repository: Path, url: str, timeout: str) -> int:
    """Run `orchestrator parallel` as a user would, and return its exit code."""
    shown = COMMAND.replace(TIMEOUT, timeout)
    print(f"$ cd {repository}", f"$ orchestrator {shown}", sep="\n", flush=True)
    command = [sys.executable, "-m", "orchestrator", *shlex.split(shown)]
    return subprocess.run(command, cwd=repository, env=environment(url), check=False).returncode


def environment(url: str) -> Mapping[str, str]:
    """Return the environment with every provider's API at `url`, without the user's keys."""
    ours = {name: value for name, value in os.environ.items() if not is_model_setting(name)}
    for provider in ("OPENAI", "ANTHROPIC", "DEEPSEEK"):
        ours[f"{provider}_API_KEY"] = "no-key-needed"
        ours[f"{provider}_API_BASE"] = url
    return ours


def is_model_setting(name: str) -> bool:
    """Return whether a variable selects a model, its API or its key."""
    return "LITELLM" in name or name.startswith(
        ("OPENAI_", "ANTHROPIC_", "DEEPSEEK_", "ARCHITECT_")
    )


def show_branches(repository: Path) -> None:
    """Print the commits of the workers."""
    print("\n$ git log --oneline --graph --branches", flush=True)
    git(repository, "log", "--oneline", "--graph", "--branches")
    print()


def find_problems(repository: Path, code: int) -> Iterator[str]:
    """Yield the differences between the result and the expected result."""
    if code != ONLY_TIMEOUTS:
        yield f"`orchestrator parallel` returned {code} instead of {ONLY_TIMEOUTS}"
    for branch, expected in EXPECTED_FILES.items():
        found = set(git_lines(repository, "diff", "--name-only", f"main...{branch}"))
        if found != expected:
            yield f"`{branch}` changes {sorted(found)} instead of {sorted(expected)}"


def shown_command() -> str:
    """Return the command as this user can type it."""
    beside_python = Path(sys.executable).with_name("orchestrator")
    if shutil.which("orchestrator"):
        return "orchestrator"
    return str(beside_python) if beside_python.exists() else f"{sys.executable} -m orchestrator"


def git(repository: Path, *arguments: str) -> None:
    """Run git in a repository, and show its output."""
    subprocess.run(["git", *arguments], cwd=repository, check=True)


def git_lines(repository: Path, *arguments: str) -> list[str]:
    """Run git in a repository, and return the lines of its output; none if it fails."""
    done = subprocess.run(
        ["git", *arguments], cwd=repository, stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
