"""A person who uses pages of the web view in Chromium, and what a test sees of the effects."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.chromium import Page
from tests.support.cli import orchestrator
from tests.support.live import eventually
from tests.support.repository import git

_PLACE = """(() => {
  const el = %s;
  el.scrollIntoView({ block: "center" });
  const box = el.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
})()"""


@dataclass
class Person:
    """Somebody who uses a page with a mouse, or with the keyboard alone."""

    page: Page
    by: str
    clicks: int = 0
    began: float = field(default_factory=time.monotonic)

    def choose(self, text: str, selector: str = "a, button, summary") -> None:
        """Click the element with this text, or reach it with the Tab key and press Enter."""
        self.click(f"[...document.querySelectorAll({selector!r})].find((el) => "
                   f"el.checkVisibility() && el.textContent.includes({text!r}))")  # fmt: skip

    def click(self, element: str) -> None:
        """Click the element that a JavaScript expression finds."""
        self.clicks += 1
        self.page.wait_for(f"document.readyState == 'complete' && !!{element}")
        if self.by == "mouse":
            x, y = self.page.value(_PLACE % element)
            for kind in ("mousePressed", "mouseReleased"):
                self.page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left",
                               clickCount=1)  # fmt: skip
            return
        self.reach(element)
        assert self.page.value("document.activeElement.matches(':focus-visible')")
        self.press("Enter", 13, "\r")

    def reach(self, element: str) -> None:
        """Press the Tab key until an element has the focus."""
        for _ in range(120):
            if self.page.value(f"document.activeElement === {element}"):
                return
            self.press("Tab", 9)
        raise AssertionError(f"the Tab key does not reach {element}")

    def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text else {}
            self.page.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed
            )

    def types(self, text: str, name: str) -> None:
        """Type into the field of this name, to which an earlier click of a mouse has led."""
        focused = f"document.activeElement?.name === {name!r}"
        if self.by == "keyboard":
            self.page.wait_for(f"document.readyState == 'complete' && !!document.forms[0]?.{name}")
            self.reach(f"document.querySelector('[name={name}]:not([type=hidden])')")
        self.page.wait_for(focused)
        self.page.call("Input.insertText", text=text)

    def sees(self, text: str) -> None:
        """Wait for a text, and check that nothing was reported and nothing is cut off."""
        self.page.wait_for(f"!!document.body && document.body.innerText.includes({text!r})")
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        assert self.page.of(*kinds) == []
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.value(width) <= 0

    def decided(self, most: int) -> None:
        """Print how many clicks and seconds the decision took, and check the clicks."""
        seconds = time.monotonic() - self.began
        sys.stdout.write(f"by {self.by}: {self.clicks} clicks, {seconds:.1f} s\n")
        assert self.clicks <= most


@contextmanager
def cleaned_up(repo: Path) -> Iterator[None]:
    """Remove what the runs of a test have created, after the block."""
    try:
        yield
    finally:
        orchestrator("stop", "--all", "--kill", cwd=repo)
        # The process of a live run ends by itself after its workers.
        eventually(lambda: "live" not in orchestrator("ls", "--json", cwd=repo).stdout, "the end")
        assert orchestrator("parallel-cleanup", "--purge", cwd=repo).returncode == 0


def written(repo: Path, number: int, file: str) -> str:
    """Return a file of a worker's branch; empty if there is none."""
    branch = f"architect/parallel-{number}"
    if not git(repo, "branch", "--list", branch):
        return ""
    listed = git(repo, "ls-tree", "--name-only", branch).split()
    return git(repo, "show", f"{branch}:{file}") if file in listed else ""
