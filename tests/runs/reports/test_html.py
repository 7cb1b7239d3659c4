"""Tests of the HTML report, parsed as browsers parse it."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib
import pytest

from orchestrator.base.events import ProviderPaused
from orchestrator.base.results import Reason, Status
from orchestrator.runs.reports import html
from orchestrator.runs.reports.html import timeline
from orchestrator.runs.reports.model import RunReport
from orchestrator.state.record.states import RunState, WorkerState
from tests.support.ci_parsers import HOSTILE_LINES, commands_in
from tests.support.local_engine import LocalEngine
from tests.support.reports import at, decided, ended, ended_run, three_workers
from tests.support.runs import shell_run

XSS = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)",
    "</pre></details></svg><iframe src=javascript:alert(1)>", "<svg/onload=alert(1)>",
    "<style>*{background:url(http://evil.example)}</style>", "</title><script>alert(1)</script>",
    "<!--", "]]>", "&lt;script&gt;", "&#60;script>", "<a href=javascript:alert(1)>x</a>",
    "<base href=http://evil.example>", "<meta http-equiv=refresh content=0>", "\u2028<b>",
    "<link rel=stylesheet href=//evil.example>", "<form action=//evil.example><input>",
)  # fmt: skip


def parsed(text: str) -> Element:
    """Parse a document; fail at the first error that the standard names."""
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    root = parser.parse(text)
    assert isinstance(root, Element)
    return root


def is_harmless(root: Element) -> bool:
    """Return whether a document cannot run anything, and does not refer to anything else."""
    for element in root.iter():
        tag = str(element.tag).rpartition("}")[2]
        assert tag not in {"script", "iframe", "object", "embed", "form", "base", "link", "img"}
        for name, value in element.attrib.items():
            assert not str(name).startswith("on"), name
            assert name not in {"src", "action", "style"}, name
            assert name != "href" or value.startswith("#"), value
    return True


def test_worker_text_is_only_text(tmp_path: Path) -> None:
    attack = "\n".join(XSS)
    root = parsed(html.render(three_workers(tmp_path, text=attack, task=attack)))
    assert is_harmless(root)
    shown = "".join(root.itertext())
    for one in XSS:
        assert shown.count(one.replace("\u2028", "\ufffd")) >= 10


def test_any_output_gives_a_valid_document_without_commands(tmp_path: Path) -> None:
    attack = "\n".join(line[:2000] for line in (*HOSTILE_LINES, *XSS, "\0\x1b[31m\ufffe\ud800"))
    text = html.render(three_workers(tmp_path, text=attack, task=attack))
    assert is_harmless(parsed(text))
    assert commands_in(text) == []
    assert "default-src 'none'" in text


def bars(report: RunReport, width: int) -> list[tuple[str, float, float]]:
    """Return the bars of a timeline of this width: class, start and end in pixels."""
    found = re.findall(r'<rect class="(p-[^"]*)" x="([\d.]+)%"[^>]*width="([\d.]+)%"',
                       timeline(report))  # fmt: skip
    scale = width / 100
    return [
        (name, float(start) * scale, (float(start) + float(length)) * scale)
        for name, start, length in found
    ]


def test_bars_are_where_the_phases_are(tmp_path: Path) -> None:
    report = ended_run(tmp_path, [ended(tmp_path, n) for n in (1, 2)], until=at(7.3))
    expected = [
        (phase, (phase.start - at(0)).total_seconds(), (phase.end - at(0)).total_seconds())
        for worker in report.workers
        for phase in worker.phases
    ]
    drawn = bars(report, 1200)
    assert len(drawn) == len(expected) == 8
    for (name, left, right), (phase, start, end) in zip(drawn, expected, strict=True):
        assert name.split()[0] == f"p-{phase.kind.value}"
        assert abs(left - start / 7.3 * 1200) < 1
        assert abs(right - end / 7.3 * 1200) < 1


def test_critical_path_and_pauses_are_marked(tmp_path: Path) -> None:
    workers = [ended(tmp_path, 1), ended(tmp_path, 2, is_critical=True)]
    pause = ProviderPaused(at=at(1), provider="p<q", seconds=1, known=True)
    text = timeline(ended_run(tmp_path, workers, paused=(pause,)))
    assert text.count('class="critical"') == text.count("\N{BLACK DIAMOND}") == 1
    assert "p&lt;q refused requests" in text
    assert 'class="pause" x="20.000%"' in text


def test_a_live_run_and_a_worker_that_never_started(tmp_path: Path) -> None:
    workers = [
        ended(tmp_path, 1, result=None, state=WorkerState.RUNNING, log="so far"),
        ended(tmp_path, 2, Status.FAILED, reason=Reason.DEPENDENCY, phases=(), name="b"),
    ]
    live = ended_run(tmp_path, workers, state=RunState.RUNNING, result=None)
    shown = "".join(parsed(html.render(live)).itertext())
    assert "orchestrator parallel running" in shown
    assert "so far" in shown
    assert "skipped (dependency)" in shown


@pytest.mark.process
def test_changes_are_shown_and_large_changes_are_listed(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.runs.reports.model import read_run
    from tests.support.live import newest

    shell_run(repo, local_engine, "echo '<b>new</b>' > 'a<b>.txt'")
    with newest(repo) as history:
        report = read_run(history.directory)
    assert report is not None
    root = parsed(html.render(report))
    shown = "".join(root.itertext())
    assert "+<b>new</b>" in shown
    assert "a<b>.txt" in shown
    monkeypatch.setattr(html, "_DIFF", 10)
    assert "+1 -0 a<b>.txt" in "".join(parsed(html.render(report)).itertext())
    gone = report.workers[0].result
    assert gone is not None
    lost = replace(report.workers[0], result=gone.model_copy(update={"commit": "0" * 40}))
    without = replace(report, by_number={1: lost})
    assert "Changed files\na<b>.txt" in "".join(parsed(html.render(without)).itertext())


def test_judgement_and_merge_are_only_text(tmp_path: Path) -> None:
    attack = "\n".join(XSS)
    root = parsed(html.render(decided(tmp_path, text=attack)))
    assert is_harmless(root)
    shown = "".join(root.itertext())
    assert "worker 1 is the best" in shown
    assert "worker 2: not merged: <script>alert(1)</script>" in shown
    assert "worker 3: tests_weakened: <script>alert(1)</script>" in shown
