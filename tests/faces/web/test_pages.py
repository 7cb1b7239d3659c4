"""Tests of the pages: what they show, that hostile text stays text, and that reading is all."""

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.base.events import (
    Intervention,
    Notice,
    WorkerDone,
    WorkerHarvesting,
    WorkerPreparing,
    WorkerRetrying,
    WorkerStageDone,
    WorkerWaiting,
)
from orchestrator.base.results import CheckResult, Reason, Status, Turn
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.container import Isolation
from orchestrator.faces.web.run_catalog import LiveUsage
from orchestrator.review.judging.judgement import Candidate, Flag, Judgement
from orchestrator.review.judging.store import write_judgement
from orchestrator.runs.reports.model import read_run
from orchestrator.state.run_directory import RunDirectory
from tests.support.landing import snapshot_of
from tests.support.live import LiveRun, eventually, newest
from tests.support.reports import BASE, RUN_ID, at
from tests.support.repository import git, make_repository
from tests.support.runs import shell_run
from tests.support.web import (
    HOSTILE_TEXTS,
    Browser,
    Shape,
    begun,
    browser,
    ended_run,
    previewed,
    result_of,
    write_run,
)

RUN = f"/repo/{RUN_ID}"


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository for all tests of this file; each test writes runs of its own."""
    return make_repository(tmp_path_factory.mktemp("pages") / "repo")


@pytest.fixture(autouse=True)
def remove_runs(repo: Path) -> Iterator[None]:
    """Remove the runs of a test."""
    yield
    state = repo / ".git" / "orchestrator" / "runs"
    for run in state.iterdir() if state.is_dir() else ():
        if run.is_file():
            run.unlink()
            continue
        RunDirectory(run).drop_objects()
        for path in sorted(run.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        run.rmdir()


PAGES = ("", "/costs", "/events", "/details", "/1", "/1/checks", "/1/events", "/1/details",
         "/1/log/stderr", "/1/findings", "/1/turns", "/compare", "?q=worker")  # fmt: skip
TOGETHER = 4
"""Hostile texts in one run."""


def hostile_run(repo: Path, text: str, run_id: str) -> None:
    check = CheckResult(name=text, passed=False, log=f"/x/{text}.log", message=text)
    result = result_of(
        1, status=Status.FAILED, reason=Reason.AGENT_FAILED, message=text, summary=text,
        model=text, branch=text, checks=[check], artifacts=[text], limits_hit=[text],
        kept_refs=[text], files_modified=[text],
        turns=[Turn(status=Status.FAILED, message=text, summary=text, commit=text)],
    )  # fmt: skip
    specs = [WorkerSpec(worker_id=1, task=text, model=text, name=text, branch_name=text)]
    run = write_run(repo, specs, [
        *begun(specs), Notice(at=at(3), message=text),
        Intervention(at=at(3), worker_id=1, trigger="needs_input", detail=text, stops=False),
        WorkerStageDone(at=at(4), worker_id=1, stage="check", name=text, duration=1, problem=text),
        WorkerDone(at=at(8), result=result),
    ], run_id=run_id)  # fmt: skip
    run.worker(1).mkdir()
    for name in ("stdout.log", "stderr.log"):
        (run.worker(1) / name).write_bytes(f"before\n{text}\nafter\n".encode())
    run.write_result(result)
    run.release()


def test_hostile_text_is_text_on_every_page(repo):
    visitor = browser(repo)
    groups = [HOSTILE_TEXTS[n : n + TOGETHER] for n in range(0, len(HOSTILE_TEXTS), TOGETHER)]
    plain: dict[str, Shape] = {}
    for number, texts in enumerate([["plain"], *groups]):
        run_id = f"20261121-0930{number:02}-5f0c2a"
        hostile_run(repo, "\n".join(texts), run_id)
        for page in PAGES:
            found = Shape(visitor.get(f"/repo/{run_id}{page}").text)
            before = plain.setdefault(page, found)
            assert found.elements == before.elements, (page, texts)
            own = [link.replace(run_id, "") for link in found.links]
            assert own == [re.sub("2026[0-9a-f-]+", "", link) for link in before.links]
        log = Shape(visitor.get(f"/repo/{run_id}/1").text).text
        for text in texts:
            if text.isprintable():
                assert " ".join(text.split()) in log
    links = Shape(visitor.get("/").text).links
    known = re.compile(
        r"/(static/\w+\.\w+\?[0-9a-f]{16}|repo/([0-9a-f-]+|new))?|\?[a-z=+]*|#content"
    )
    assert all(known.fullmatch(one) for one in links)


def test_run_page_shows_workers_states_and_reasons(repo):
    ended_run(
        repo,
        result_of(1, insertions=12, deletions=3, files_modified=["a"], cost=0.5, cost_known=True),
        result_of(2, status=Status.FAILED, reason=Reason.OOM, message="killed at 2 GB"),
        result_of(3, status=Status.FAILED, reason=Reason.CANCELLED),
    )
    text = Shape(browser(repo).get(RUN).text).text
    for said in (
        "Success",
        "Failed · out of memory",
        "killed at 2 GB",
        "Cancelled",
        "3 of 3 done",
        "+12",
    ):
        assert said in text
    assert "Cancelled · cancelled" not in text
    assert "1 failed 1 cancelled 1 success" in text
    assert "$0.5000" in text


def test_live_run_shows_alerts_and_is_refreshed(repo):
    specs = [WorkerSpec(worker_id=1, task="migrate", model=None)]
    alert = Intervention(at=at(3), worker_id=1, trigger="needs_input", detail="drop? (y/n)",
                         stops=False)  # fmt: skip
    run = write_run(repo, specs, [*begun(specs), alert])
    run.worker(1).mkdir()
    visitor = browser(repo)
    page = visitor.get(RUN).text
    assert "needs attention:" in Shape(page).text
    details = visitor.get(f"{RUN}/1").text
    assert '<span class="badge warning">' in details
    assert "or look inside with <code>orchestrator shell 1 --run" in details
    assert "drop? (y/n)" in page
    assert "data-live" in page
    assert "Stop run" in page
    version = page.partition('data-version="')[2].partition('"')[0]
    assert version.startswith("1")
    run.log_event(WorkerHarvesting(at=at(9), worker_id=1))
    page = visitor.get(RUN, x_version=version).text
    assert "Harvesting" in page
    assert "needs attention" not in page, "the agent has ended"
    run.release()
    died = visitor.get(RUN).text
    assert "Died" in died
    assert "orchestrator resume" in died
    listed = Shape(visitor.get("/").text).text
    assert "1 died" in listed
    assert "failed" not in listed
    assert " data-live" not in died


def test_workers_that_wait_say_why(repo):
    specs = [WorkerSpec(worker_id=n, task=f"task {n}", model=None) for n in (1, 2, 3, 4)]
    why = "task `plan` must end first"
    run = write_run(repo, specs, [
        *begun(specs)[:5], WorkerWaiting(at=at(3), worker_id=4, cause="dependency", reason=why)
    ])  # fmt: skip
    visitor = browser(repo)
    page = Shape(visitor.get(RUN).text).text
    assert page.count("all 2 slots are in use") == 1
    assert page.count(why) == 1
    assert f"This worker waits: {why}" in Shape(visitor.get(f"{RUN}/4").text).text
    assert f"waits: {why}" in visitor.get(f"{RUN}/events").text
    run.log_event(WorkerPreparing(at=at(4), worker_id=4))
    assert why not in visitor.get(RUN).text
    run.release()
    assert "slots are in use" not in visitor.get(RUN).text


def test_page_is_not_sent_again_unless_something_happened(repo):
    run = ended_run(repo, result_of(1))
    visitor = browser(repo)
    for path in ("/", RUN, f"{RUN}/1", f"{RUN}/events", f"{RUN}/1/details"):
        page = visitor.get(path).text
        version = page.partition('data-version="')[2].partition('"')[0]
        assert visitor.get(path, x_version=version).status == 304
        assert visitor.get(path, x_version="old").status == 200
        run.log_event(Notice(message="x"))
        assert visitor.get(path, x_version=version).status == 200


def test_a_notice_after_the_end_does_not_make_the_run_longer(repo):
    run = ended_run(repo, result_of(1))
    visitor = browser(repo)
    bars = re.findall("<rect [^>]*>", visitor.get(RUN).text)
    report = read_run(run)
    run.log_event(Notice(at=at(900), message="web view: merged worker 1 into main"))
    assert re.findall("<rect [^>]*>", visitor.get(RUN).text) == bars
    assert report is not None
    later = read_run(run)
    assert later is not None
    assert (later.ended_at, later.until) == (report.ended_at, report.until)


def test_retries_are_bars_of_their_own(repo):
    specs = [WorkerSpec(worker_id=1, task="t", model=None)]
    result = result_of(1, attempts=2, started_at=at(10), duration=4)
    again = begun(specs)[1:]
    run = write_run(repo, specs, [
        *begun(specs), WorkerHarvesting(at=at(6), worker_id=1),
        WorkerRetrying(at=at(7), worker_id=1, attempt=2, reason="oom", delay=2),
        *(one.model_copy(update={"at": at(9 + n)}) for n, one in enumerate(again)),
        WorkerDone(at=at(20), result=result),
    ])  # fmt: skip
    run.write_result(result)
    run.release()
    page = browser(repo).get(RUN).text
    titles = re.findall(r"<title>(\w[^<]*: [^<]*)</title>", page)[0:]
    assert [one for one in titles if "attempt" in one] == [
        "queue, attempt 1: 1.0s", "preparation, attempt 1: 1.0s", "agent, attempt 1: 4.0s",
        "saving work, attempt 1: 1.0s", "waiting to retry, attempt 2: 2.0s",
        "preparation, attempt 2: 1.0s", "agent, attempt 2: 4.0s", "end, attempt 2: 6.0s",
    ]  # fmt: skip
    agent = re.findall(r'<rect class="(\w+)" x="([\d.]+)%" width="([\d.]+)%"', page)
    assert ("danger", "10.000", "20.000") in agent
    assert ("success", "50.000", "20.000") in agent


def test_judgement_names_the_best_worker_and_offers_to_pick_it(repo):
    run = ended_run(repo, result_of(1), result_of(2))
    visitor = browser(repo)
    assert visitor.get(f"{RUN}/judgement").status == 404
    assert "Judgement" not in visitor.get(RUN).text
    flag = Flag(flag="new_skips", out=True, message="skips <b>tests</b>")
    best, other = (
        Candidate(run_id=RUN_ID, worker_id=n, commit=BASE, protected=BASE, place=place,
                  passes=place == 1, out=place == 2, lines=3, files=1,
                  flags=(flag,) if place == 2 else ())
        for n, place in ((2, 1), (1, 2))
    )  # fmt: skip
    write_judgement(run.path, Judgement(
        run_id=RUN_ID, number=1, base=BASE, tests="frozen", checks=("make test",),
        decision="clear", picked=2, ranking=(best, other),
    ))  # fmt: skip
    page = visitor.get(f"{RUN}/judgement").text
    text = Shape(page).text
    for said in ("Worker 2 is the best", "excluded", "skips <b>tests</b>", "check: make test"):
        assert said in text
    assert f'class="button primary" href="{RUN}/pick?worker=2"' in page
    form = visitor.get(f"{RUN}/pick").text
    assert "Pick worker 2" in Shape(form).text
    assert "skips <b>tests</b>" in Shape(visitor.get(f"{RUN}/pick?worker=1").text).text
    assert visitor.get(f"{RUN}/pick?worker=3").status == 404
    assert "Pick" not in browser(repo, read_only=True).get(f"{RUN}/judgement").text
    assert f'class="button primary" href="{RUN}/judgement">Pick…' in visitor.get(RUN).text
    assert f'href="{RUN}/1/diff"' in page
    assert re.search(r"<s>[^<]*</s></a>.*skips", page), "the excluded candidate is struck out"


@pytest.mark.parametrize(
    ("column", "flags", "why"),
    [
        ("cost", (), "is ahead of the next only by: cost"),
        ("number", (), "is ahead of the next only by: only its number"),
        (None, (), "nothing proves that worker 1 is right"),
        ("checks", ("needs_new_tests",), "a person has to review worker 1 first"),
    ],
)
def test_an_undecided_judgement_says_why_and_shows_models_and_rules(repo, column, flags, why):
    run = ended_run(repo, result_of(1), result_of(2))
    found = tuple(Flag(flag=name, out=False, message="a flag") for name in flags)
    ranking = tuple(
        Candidate(run_id=RUN_ID, worker_id=n, commit=BASE, protected=BASE, place=n, passes=True,
                  out=False, lines=3, files=1, model=f"model-{n}", flags=found if n == 1 else (),
                  decided_by=column if n == 1 else None)
        for n in (1, 2)
    )  # fmt: skip
    write_judgement(run.path, Judgement(
        run_id=RUN_ID, number=1, base=BASE, tests="frozen", checks=("make test",),
        must_fix=("make bug",), without_canary=("make test",), decision="undecided",
        ranking=ranking,
    ))  # fmt: skip
    text = Shape(browser(repo).get(f"{RUN}/judgement").text).text
    for said in (why, "model-1", "model-2", "must fail on the base: make bug",
                 "not tried with tests that must fail: make test"):  # fmt: skip
        assert said in text


def test_browsing_changes_nothing(repo):
    ended_run(repo, result_of(1), result_of(2, status=Status.FAILED, reason=Reason.OOM))
    visitor = browser(repo)
    before = snapshot_of(repo)
    others = ("/conflicts", "/compare", "/1/diff", "/2/diff", "/1/stop", "/1/retry", "/merge",
              "/pick", "/1/findings", "/1/artifact/1", "/9", "?q=a", "?from=1&to=2")  # fmt: skip
    for path in ("/", "/nothing", *(f"{RUN}{page}" for page in (*PAGES, *others))):
        assert visitor.get(path).status in (200, 404)
    assert snapshot_of(repo) == before


def test_list_has_pages_and_distinguishes_repositories(repo):
    for number in range(55):
        write_run(
            repo, [WorkerSpec(worker_id=1, task=f"task {number}", model=None)], [],
            run_id=f"20261121-0930{number:02}-5f0c2a",
        ).release()  # fmt: skip
    visitor = browser(repo)
    first, second = (Shape(visitor.get(f"/?page={n}").text) for n in (1, 2))
    assert "task 54" in first.text
    assert "task 4 " not in first.text
    assert "Page 1 of 2" in first.text
    assert "task 4 " in second.text
    for odd in ("0", "-1", "9999999", "x", "1e3"):
        assert visitor.get(f"/?page={odd}").status == 200


def test_workers_and_runs_are_found_by_words(repo):
    ended_run(
        repo,
        result_of(1, model="gpt-4o"),
        result_of(2, status=Status.FAILED, reason=Reason.OOM, model="claude"),
        task="write the <i>docs</i>",
    )
    write_run(repo, [WorkerSpec(worker_id=1, task="other", model=None)], [],
              run_id="20261121-093001-5f0c2a").release()  # fmt: skip
    visitor = browser(repo)

    def found(path: str) -> list[str]:
        links = Shape(visitor.get(path).text).links
        return [link for link in links if re.fullmatch(rf"{path.partition('?')[0]}/[\w-]+", link)]

    rows = [f"{RUN}/1", f"{RUN}/2"]
    tabs = [one for one in found(RUN) if one not in rows]
    for words, expected in (
        ("failed", rows[1:]), ("out+of+memory", rows[1:]), ("gpt", rows[:1]), ("DOCS", rows),
        ("docs+claude", rows[1:]), ("", rows), ("nothing", []),
    ):  # fmt: skip
        assert [one for one in found(f"{RUN}?q={words}") if one not in tabs] == expected, words
    nothing = Shape(visitor.get(f"{RUN}?q=<script>x").text)
    assert "No worker matches <script>x" in nothing.text
    for words, expected in (("docs", [RUN]), (RUN_ID, [RUN]), ("claude", [RUN]), ("zzz", [])):
        links = Shape(visitor.get(f"/?q={words}").text).links
        assert [one for one in links if one.startswith("/repo/2")] == expected, words


def test_workers_and_runs_are_filtered_by_their_states(repo):
    failed = {"status": Status.FAILED, "reason": Reason.AGENT_FAILED}
    ended_run(
        repo, result_of(1), result_of(2, **failed), result_of(3, message="not failed"),
        result_of(4, status=Status.PARTIAL, reason=Reason.CHECKS_FAILED),
    )  # fmt: skip
    spec = WorkerSpec(worker_id=1, task="other", model=None)
    write_run(repo, [spec], [], run_id="20261121-093001-5f0c2a").release()
    visitor = browser(repo)
    page = visitor.get(RUN).text
    for state, expected in (("failed", [2]), ("success", [1, 3]), ("partial", [4]), ("x", [])):
        links = Shape(visitor.get(f"{RUN}?state={state}").text).links
        assert [n for n in range(1, 5) if f"{RUN}/{n}" in links] == expected, state
        assert (f'href="?state={state}"' in page) == bool(expected)
    for query, expected in (
        ("state=failed", [RUN]), ("state=died", ["/repo/20261121-093001-5f0c2a"]),
        ("state=running", []), ("judged=yes", []), ("repository=repo&state=failed", [RUN]),
        ("repository=other", []), ("state=failed&q=zzz", []),
    ):  # fmt: skip
        links = Shape(visitor.get(f"/?{query}").text).links
        assert [one for one in links if one.startswith("/repo/2")] == expected, query


def test_pages_of_many_workers_are_bounded_and_begin_with_failed_ones(repo):
    bad = {"status": Status.FAILED, "reason": Reason.OOM}
    ended_run(repo, *(result_of(n, **(bad if n in (150, 230) else {})) for n in range(1, 251)))
    visitor = browser(repo)

    def shown(query: str) -> list[int]:
        links = Shape(visitor.get(f"{RUN}{query}").text).links
        return [int(found[1]) for one in links if (found := re.fullmatch(rf"{RUN}/(\d+)", one))]

    pages = [shown(f"?page={number}") for number in (1, 2, 3)]
    assert [len(page) for page in pages] == [100, 100, 50]
    assert pages[0][:4] == [150, 230, 1, 2]
    assert sorted(number for page in pages for number in page) == [*range(1, 251)]
    assert shown("?page=99") == pages[2]
    assert shown("?state=failed&page=2") == [150, 230]
    assert len(visitor.get(f"{RUN}/compare?a=150&b=3").text) < 60_000
    assert visitor.get(f"{RUN}/compare?a=150&b=3").text.count("<option") == 0
    for number, beside in ((1, 100), (125, 76), (250, 151)):
        links = Shape(visitor.get(f"{RUN}/{number}").text).links
        assert sum(bool(re.fullmatch(rf"{RUN}/\d+", one)) for one in links) <= 103
        assert f"{RUN}/{beside}" in links


def test_tests_of_commits_are_listed_on_request(repo):
    ended_run(repo, result_of(1), task="the task")
    spec = WorkerSpec(worker_id=1, task="make check", model=None)
    test = write_run(repo, [spec], [], run_id="20261121-093001-5f0c2a")
    test.mark_as_test()
    test.release()
    visitor = browser(repo)
    shown = visitor.get("/").text
    assert "the task" in shown
    assert "make check" not in shown
    assert "1 run that only tested a commit is not listed" in shown
    assert "make check" in visitor.get("/?tests=show").text


def test_details_show_settings_without_values(repo, local_engine):
    isolation = Isolation(network="none", env={"TOKEN_X": "swordfish"})
    result = shell_run(repo, local_engine, "true", isolation=isolation, retries=2)
    visitor = browser(repo)
    for page in ("details", f"{result.results[0].worker_id}/details"):
        answer = visitor.get(f"/repo/{result.run_id}/{page}").text
        text = Shape(answer).text
        assert "Agent program shell" in text
        assert "Retries 2 retries" in text
        assert "swordfish" not in answer
    assert "TOKEN_X" in visitor.get(f"/repo/{result.run_id}/details").text


def test_running_workers_are_measured_while_a_page_shows_them(
    repo, tmp_path, local_engine, monkeypatch
):
    monkeypatch.setattr("orchestrator.faces.web.run_catalog.INTERVAL", 0.05)
    live = LiveRun(repo, tmp_path / "gate")
    connected = []

    def connect(_):
        connected.append(1)
        return local_engine

    usage = LiveUsage(connect)
    visitor = browser(repo, usage=usage)
    with live.going_on(local_engine, live.wait_for_gate, "true"):
        with newest(repo) as history:
            run, number = f"/repo/{history.run_id}", min(history.workers)
        assert connected == [], "nobody looked"
        page = eventually(lambda: "of memory" in (text := visitor.get(run).text) and text)
        assert re.search(r'<td class="num w-memory">[\d.]+ [KM]iB</td>', page)
        assert re.search(
            r"CPU, [\d.]+ [KM]iB|[\d.]+ [KM]iB</span>", visitor.get(f"{run}/{number}").text
        )
        assert connected == [1], "one connection for all pages"
        threads = [one for one in threading.enumerate() if one.name == "usage"]
        assert len(threads) == 1
        monkeypatch.setattr("orchestrator.faces.web.run_catalog.PATIENCE", 0.0)
        eventually(lambda: not threads[0].is_alive(), "the end of the measurements")
    assert "of memory" not in visitor.get(run).text


def test_diff_and_conflicts_of_a_real_run(tmp_path, local_engine):
    repo = make_repository(tmp_path / "repo")
    made = "printf '<b>one</b>\\n' > a.txt; printf x > '<img src=x>.txt'"
    result = shell_run(
        repo, local_engine, made, "printf 'two\\n' > a.txt", "printf 3 > c.txt; echo", workers=3
    )
    run = f"/repo/{result.run_id}"
    visitor = browser(repo)
    page = Shape(visitor.get(f"{run}/1/diff").text)
    assert "<b>one</b>" in page.text
    assert "<img src=x>.txt" in page.text
    assert not [tag for tag, _ in page.elements if tag in ("b", "img")]
    conflicts = Shape(visitor.get(f"{run}/conflicts").text).text
    assert "1 pair cannot be merged" in conflicts
    assert "a.txt" in conflicts
    compare_in_browser(visitor, run)
    merge_in_browser(repo, visitor, run)
    pick_in_browser(repo, visitor, run, result.run_id)


def compare_in_browser(visitor: Browser, run: str) -> None:
    page = Shape(visitor.get(f"{run}/compare?a=2&b=1").text)
    assert "From worker 2 to worker 1" in page.text
    assert "a.txt different" in page.text
    assert "<img src=x>.txt" in page.text
    assert "<b>one</b>" in page.text
    assert not [tag for tag, _ in page.elements if tag in ("b", "img")]
    for odd in ("", "?a=1&b=1", "?a=99&b=x", "?a=<b>"):
        assert visitor.get(f"{run}/compare{odd}").status == 200


def pick_in_browser(repo: Path, visitor: Browser, run: str, run_id: str) -> None:
    judged = git(repo, "rev-parse", "architect/parallel-3")
    candidate = Candidate(run_id=run_id, worker_id=3, commit=judged, protected=judged, place=1,
                          passes=True, out=False, lines=1, files=1)  # fmt: skip
    write_judgement(repo / ".git/orchestrator/runs" / run_id, Judgement(
        run_id=run_id, number=1, base=BASE, tests="frozen", checks=(), decision="clear", picked=3,
        ranking=(candidate,),
    ))  # fmt: skip
    token = visitor.token(f"{run}/pick")
    form = {"token": token, "worker": "3", "form": "merge"}
    before = git(repo, "rev-parse", "main")
    git(repo, "update-ref", "refs/heads/architect/parallel-3", "main")
    for how in ("preview", "merge"):
        said = Shape(visitor.post(f"{run}/pick", {**form, "how": how}).text).text
        assert "has moved since it was judged" in said
    assert git(repo, "rev-parse", "main") == before
    git(repo, "update-ref", "refs/heads/architect/parallel-3", judged)
    preview = visitor.post(f"{run}/pick", {**form, "how": "preview"}).text
    assert "would be merged" in preview
    assert git(repo, "rev-parse", "main") == before
    done = visitor.post(f"{run}/pick", {**form, "how": "merge", **previewed(preview)}).text
    assert "was merged into" in Shape(done).text
    assert git(repo, "show", "main:c.txt") == "3"
    assert "web view: picked worker 3 into main" in visitor.get(f"{run}/events").text


def merge_in_browser(repo: Path, visitor: Browser, run: str) -> None:
    before = (repo / ".git/refs/heads/main").read_text()
    token = visitor.token(f"{run}/merge")
    chosen = {"token": token, "worker": ["1"], "form": "merge", "conflict": "stop"}
    preview = visitor.post(f"{run}/merge", {**chosen, "how": "preview"}).text
    assert "would be merged into" in Shape(preview).text
    fields = {**chosen, "form": "squash", "conflict": "skip", "how": "change"}
    again = visitor.post(f"{run}/merge", fields).text
    assert re.findall(r'value="(\d)" checked', again) == ["1"], "the form keeps what was chosen"
    assert 'value="squash" selected' in again
    assert 'value="skip" selected' in again
    assert "were merged" not in Shape(visitor.get(run).text).text
    assert (repo / ".git/refs/heads/main").read_text() == before
    both = visitor.post(f"{run}/merge", {**chosen, "worker": ["1", "2"], "how": "preview"}).text
    assert "Nothing would be merged" in Shape(both).text
    for name in ("before", "after"):
        odd = {**chosen, "how": "merge", **previewed(preview), name: "0" * 40}
        assert "moved since the preview" in Shape(visitor.post(f"{run}/merge", odd).text).text
    assert (repo / ".git/refs/heads/main").read_text() == before
    done = visitor.post(f"{run}/merge", {**chosen, "how": "merge", **previewed(preview)}).text
    assert "was merged into" in Shape(done).text
    assert (repo / ".git/refs/heads/main").read_text() != before
    assert "web view: merged worker 1 into main" in visitor.get(f"{run}/events").text
    assert "Worker 1 was merged into main" in Shape(visitor.get(run).text).text
    for odd in ({"worker": []}, {"worker": ["99"]}, {"form": "x"}, {"conflict": "x"}):
        said = visitor.post(f"{run}/merge", {**chosen, **odd, "how": "preview"}).text
        assert "callout danger" in said


MANY_PAGES = {"": 200, "?state=failed": 60, "/1": 80, "/costs": 200, "/events": 200, "/details": 30,
              "/compare": 60, "/merge": 200, "/conflicts": 30}  # fmt: skip
"""Pages of a run of 1,000 workers, and the maximum number of KiB of each."""


@pytest.mark.extra
def test_pages_of_a_thousand_workers_are_small_and_quick(repo):
    ended_run(repo, *(
        result_of(n, insertions=n, files_modified=[f"src/{n}.py"], model=f"model-{n % 5}",
                  **({} if n % 50 else {"status": Status.FAILED, "reason": Reason.AGENT_FAILED,
                                        "message": "said at length why the task failed"}))
        for n in range(1, 1001)
    ), task="Move the prices of the shop to one place, and test that place")  # fmt: skip
    visitor = browser(repo)
    for page, most in MANY_PAGES.items():
        answer = visitor.get(f"{RUN}{page}")
        assert answer.status == 200
        assert len(answer.body) <= most * 1024, (page, len(answer.body))
    taken = []
    for _ in range(3):
        # The machine may be busy: this thread's and its helpers' own time counts.
        began = time.process_time()
        assert "Page 1 of 10, failed workers first" in Shape(visitor.get(RUN).text).text
        taken.append(time.process_time() - began)
    assert min(taken) < 0.3
    assert ">Next<" in visitor.get(f"{RUN}/costs").text
