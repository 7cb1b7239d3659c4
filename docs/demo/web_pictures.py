"""Take the pictures of the web view and of a report, and check pages in a real browser.

Needs a Docker daemon, the Debian package `chromium`, and the packages `playwright` and
`axe-playwright-python`. Every page is loaded at 1400 and 400 pixels, light and dark. The program
fails if a page logs a message, overflows, moves its content while it loads, or breaks a rule of
WCAG 2 A or AA.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).resolve().parent
ORCHESTRATOR = Path(sys.executable).with_name("orchestrator")
RUNS = ".git/orchestrator/runs"
WIDTHS = {1400: 900, 400: 800, 360: 740}
PICTURES = {"web-run": ("run", "light"), "web-log": ("log", "dark")}
"""Pictures of the documentation: page and theme, at 1400 pixels."""
REPORT = HERE / "report.png"
"""Picture of the documentation: the report of the ended workflow."""
_SHIFT = """() => new Promise(done => {
  let sum = 0;
  new PerformanceObserver(list => list.getEntries().forEach(one => { sum += one.value; }))
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 300);
})"""
_OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
_RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}


def main() -> int:
    """Take the pictures; return 1 if a page has a problem."""
    keep = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(prefix="orchestrator-web-") as scratch:
        repository = Path(scratch) / "shop"
        subprocess.run([HERE / "web_runs.sh", scratch, ORCHESTRATOR], check=True)
        try:
            cancel_worker(repository)
            with serving(repository) as link:
                problems = list(visit(link, repository, keep))
        finally:
            for command in (["stop", "--all", "--kill"], ["parallel-cleanup", "--purge"]):
                subprocess.run([ORCHESTRATOR, *command], cwd=repository, check=False)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def cancel_worker(repository: Path) -> None:
    """Stop the worker that writes the installation guide, so that one worker is cancelled."""
    time.sleep(15)
    number = addresses(repository)["log"].rpartition("/")[2]
    subprocess.run([ORCHESTRATOR, "stop", str(int(number) + 3)], cwd=repository, check=True)


@contextmanager
def serving(repository: Path) -> Iterator[str]:
    """Serve the web view during the block; yield the one-time link."""
    server = subprocess.Popen(
        [ORCHESTRATOR, "ui"], cwd=repository, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        yield found[0]
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=20)


def visit(link: str, repository: Path, keep: Path | None) -> Iterator[str]:
    """Load every page in every form, and yield the problems."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(link)
        page.wait_for_selector(".runs")
        base = link.partition("/open")[0]
        for name, path in addresses(repository).items():
            for theme in ("light", "dark"):
                yield from look(page, base + path, f"{name} ({theme})", theme)
                if keep is not None:
                    picture(page, keep / f"{name}-{theme}")
                for target, wanted in PICTURES.items():
                    if wanted == (name, theme):
                        page.set_viewport_size({"width": 1400, "height": 1060})
                        page.reload()
                        # The first measurement of CPU time needs two seconds.
                        page.wait_for_timeout(6000)
                        page.screenshot(path=HERE / f"{target}.png")
        yield from said
        picture_of_report(page, repository)
        browser.close()


def picture_of_report(page: Page, repository: Path) -> None:
    """Take the picture of the HTML report."""
    run_id = addresses(repository)["workflow"].rpartition("/")[2]
    file = repository.with_name("report.html")
    command = [ORCHESTRATOR, "report", run_id, "--report", f"html={file}"]
    subprocess.run(command, cwd=repository, check=True)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1000, "height": 820})
    page.goto(file.as_uri())
    page.screenshot(path=REPORT)


def addresses(repository: Path) -> dict[str, str]:
    """Return the addresses of the pages: of the workflow that ended, and of the live run."""
    records = [json.loads(path.read_text()) for path in repository.glob(f"{RUNS}/*/run.json")]
    found = {one["workflow"]["name"]: one for one in records if one.get("workflow")}
    ended, live = found["Prepare release 2.4"], found["Sprint 14"]
    first = live["workers"][0]["worker_id"]
    old, run = f"/shop/{ended['run_id']}", f"/shop/{live['run_id']}"
    (judged,) = (
        f"/shop/{path.parent.name}" for path in repository.glob(f"{RUNS}/*/judgement-1.json")
    )
    return {
        "runs": "/", "search": "/?q=nothing+at+all", "run": run, "found": f"{run}?q=running",
        "zoom": f"{run}?from=6&to=20", "workflow": old, "graph": f"{old}/graph",
        "judgement": f"{judged}/judgement", "pick": f"{judged}/pick?worker=9",
        "compare": f"{judged}/compare",
        "conflicts": f"{old}/conflicts", "costs": f"{run}/costs", "events": f"{run}/events",
        "settings": f"{run}/details", "log": f"{run}/{first + 4}", "busy": f"{run}/{first + 6}",
        "failed": f"{run}/{first + 2}", "waiting": f"{run}/{first + 3}", "diff": f"{old}/2/diff",
        "findings": f"{run}/{first + 5}/findings", "details": f"{old}/2/details",
        "stop": f"{run}/{first + 1}/stop", "merge": f"{old}/merge",
        "new": "/shop/new", "pr": f"{old}/pr",
        "cleanup": f"{old}/cleanup", "judge": f"{old}/judge", "retry": f"{old}/2/retry",
        "continue": f"{run}/{first + 1}/continue", "split": f"{old}/2/diff?view=split",
    }  # fmt: skip


def look(page: Page, address: str, name: str, theme: Any) -> Iterator[str]:
    """Check a page at every width."""
    page.emulate_media(color_scheme=theme)
    for width, height in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": height})
        page.goto(address)
        shift = page.evaluate(_SHIFT)
        if shift > 0.01:
            yield f"{name} at {width}: the content moved by {shift:.3f}"
        excess = page.evaluate(_OVERFLOW)
        if excess > 0:
            yield f"{name} at {width}: {excess} pixels are cut off"
    for violation in Axe().run(page, options=_RULES).response["violations"]:
        nodes = ", ".join(str(node["target"]) for node in violation["nodes"][:3])
        yield f"{name}: {violation['id']}: {violation['help']} ({nodes})"


def picture(page: Page, target: Path) -> None:
    """Keep a picture of the page at 1400 and 400 pixels."""
    for width in (1400, 400):
        page.set_viewport_size({"width": width, "height": WIDTHS[width]})
        page.reload()
        page.wait_for_timeout(600)
        page.screenshot(path=f"{target}-{width}.png")


if __name__ == "__main__":
    sys.exit(main())
