"""Tests of Markdown reports, rendered as GitHub renders them."""

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from orchestrator.base.results import Reason, Status
from orchestrator.runs.reports import markdown
from orchestrator.state.record.states import RunState, WorkerState
from tests.support.ci_parsers import HOSTILE_LINES
from tests.support.reports import check, decided, ended, ended_run, three_workers

ATTACKS = (
    "</details></td></table><script>alert(1)</script><img src=x onerror=alert(1)>",
    "[click](https://evil.example) ![x](http://evil.example/a.png) <https://evil.example>",
    "@everyone #1 GH-2 org/repo#3 !4 https://evil.example www.evil.example",
    "```\n````\n`````\n# heading\n| a | b |\n|---|---|\n| `x` | **b** |",
    "~~~\n<!-- orchestrator:nightly -->\n--> $x$ *a* _b_ ~~c~~ \\",
    "a | b | c `` d ` e",
)


def rendered(text: str) -> str:
    return MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text)


def html_tags(text: str) -> set[str]:
    return set(re.findall(r"<(/?[a-z0-9]+)", rendered(text)))


PLAIN_TAGS = {
    "h3", "p", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre", "code",
    "ul", "li",
}  # fmt: skip


@pytest.mark.parametrize("attack", [*ATTACKS, "\n".join(line[:300] for line in HOSTILE_LINES)])
def test_worker_text_is_never_markup(tmp_path: Path, attack: str) -> None:
    text = markdown.render(three_workers(tmp_path, text=attack, task=attack))
    tags = html_tags(text)
    assert tags <= PLAIN_TAGS | {f"/{tag}" for tag in PLAIN_TAGS}
    assert text.count("<!-- orchestrator:nightly -->\n") - text.count("\n<!-- orch") == 1


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_outside_of_fences_notifies_or_links(tmp_path: Path, attack: str) -> None:
    report = three_workers(tmp_path, text="nothing", task=attack)
    text = re.sub(r"<pre>.*?</pre>", "", rendered(markdown.render(report)), flags=re.DOTALL)
    assert not re.search(r"@[a-z]|#\d|GH-\d|!\d|://[a-z]|www\.[a-z]", text)


def test_names_of_workers_are_never_markup(tmp_path: Path) -> None:
    name = "</summary><b>@x"
    worker = ended(tmp_path, 1, Status.FAILED, reason=Reason.OOM, name=name)
    text = rendered(markdown.render(ended_run(tmp_path, [worker])))
    assert "<b>" not in text
    assert text.count("</summary>") == 1


def test_failures_are_folded_and_the_worst_come_first(tmp_path: Path) -> None:
    workers = [
        ended(tmp_path, 1, insertions=3, deletions=1, files_modified=["a", "b"]),
        ended(tmp_path, 2, Status.PARTIAL, reason=Reason.CHECKS_FAILED,
              checks=[check(tmp_path, "lint", passed=False), check(tmp_path, "t", passed=True)]),
        ended(tmp_path, 3, Status.FAILED, reason=Reason.OOM, message="over 1g", log="last line"),
    ]  # fmt: skip
    text = markdown.render(ended_run(tmp_path, workers))
    assert text.startswith("<!-- orchestrator:parallel -->\n")
    assert "orchestrator: failed, 1 of 3 workers succeeded" in text
    assert "| 1 | task 1 | success | 2 files, +3 -1 |  | ? | 2.5 s |" in text
    assert "| 2 | task 2 | partial \\(checks\\_failed\\) |  | 1/2 | ? | 2.5 s |" in text
    folded = re.findall(r"<summary>(.*?)</summary>", text)
    assert folded == ["worker 3: failed (oom)", "worker 2: partial (checks_failed)"]
    assert "```text\nlast line\n```" in text


def test_a_report_is_not_too_long_for_a_comment(tmp_path: Path) -> None:
    workers = [
        ended(tmp_path, n, Status.FAILED, reason=Reason.OOM, message="m" * 500, log="x" * 9000)
        for n in range(1, 301)
    ]
    text = markdown.render(ended_run(tmp_path, workers))
    assert len(text) <= markdown.MOST
    assert text.count("\n| ") == 302
    left = re.search(r"Details of (\d+) more workers are not shown", text)
    assert left is not None
    assert int(left[1]) + text.count("<details>") == 300
    assert text.count("<details>") == text.count("</details>") > 3
    short = markdown.render(ended_run(tmp_path, workers), most=4000)
    assert len(short) <= 4000
    assert re.search(r"\d+ more workers are not shown", short)


def test_a_live_and_a_died_run(tmp_path: Path) -> None:
    worker = ended(tmp_path, 1, result=None, state=WorkerState.RUNNING, log="so far")
    live = ended_run(tmp_path, [worker], state=RunState.RUNNING, result=None)
    assert "orchestrator: running, 0 of 1 worker succeeded" in markdown.render(live)
    assert "<details>" not in markdown.render(live)
    died = ended_run(tmp_path, [worker], state=RunState.DIED, result=None)
    assert "so far" in markdown.render(died)


@pytest.mark.parametrize("attack", [*ATTACKS, "\n".join(line[:300] for line in HOSTILE_LINES)])
def test_judgement_and_merge_are_tables_and_lists_without_markup(
    tmp_path: Path, attack: str
) -> None:
    text = markdown.render(decided(tmp_path, text=attack))
    tags = PLAIN_TAGS | {"h4"}
    assert html_tags(text) <= tags | {f"/{tag}" for tag in tags}
    assert "| 1 | 1 | passes | 1/1 | 3 | ? |" in text
    assert "worker 1 is the best" in text
    assert "- worker 2: not merged: " in text
    for most in (500, 2000, 5000):
        assert len(markdown.render(decided(tmp_path, text=attack), most=most)) <= most + 300
