"""Tests of actions: each does what its command does, asks first, and is absent if read-only."""

import pytest

from orchestrator.web.actions import Actions
from orchestrator.worker_spec import WorkerSpec
from tests.support.reports import RUN_ID
from tests.support.web import begun, browser, ended_run, result_of, write_run

RUN = f"/repo/{RUN_ID}"


@pytest.fixture
def live(repo):
    """Return a live run with two workers."""
    specs = [WorkerSpec(worker_id=n, task="sleep", model=None) for n in (1, 2)]
    run = write_run(repo, specs, begun(specs))
    yield run
    run.release()


def test_stop_asks_first_and_then_requests_it_like_the_command(repo, live):
    visitor = browser(repo)
    assert "Stop worker 2?" in visitor.get(f"{RUN}/2/stop").text
    assert live.stop_requests() == frozenset()
    token = visitor.token(f"{RUN}/2/stop")
    answer = visitor.post(f"{RUN}/2/stop", {"token": token, "how": "stop"})
    assert (answer.status, answer.headers["location"]) == (303, f"{RUN}/2")
    assert live.stop_requests() == {2}
    assert not live.kill_asked(2)
    assert "web view: the user asked to stop worker 2" in visitor.get(f"{RUN}/events").text
    visitor.post(f"{RUN}/stop", {"token": token, "how": "kill"})
    assert live.stop_requests() == {1, 2}
    assert live.kill_asked(1)


def test_ended_run_cannot_be_stopped(repo):
    run = ended_run(repo, result_of(1))
    visitor = browser(repo)
    assert "Stop" not in visitor.get(RUN).text
    token = visitor.token(f"{RUN}/1/stop")
    answer = visitor.post(f"{RUN}/1/stop", {"token": token, "how": "stop"})
    assert answer.status == 409
    assert "has ended" in answer.text
    assert run.stop_requests() == frozenset()


def test_read_only_view_has_no_actions(repo, live):
    visitor = browser(repo, read_only=True)
    for path in (RUN, f"{RUN}/1"):
        page = visitor.get(path).text
        assert "Stop" not in page
        assert '<form method="post"' not in page
    for path in (f"{RUN}/stop", f"{RUN}/1/stop", f"{RUN}/1/retry", f"{RUN}/merge", f"{RUN}/pick"):
        assert visitor.get(path).status == 404
        assert visitor.post(path, {"how": "stop"}).status == 405
    assert live.stop_requests() == frozenset()


def test_retry_starts_what_was_confirmed(repo, monkeypatch):
    ended_run(repo, result_of(1))
    asked = []

    def repeat(repository, run_id, number):
        asked.append((repository.top, run_id, number))
        return "20261122-000000-abcdef"

    monkeypatch.setattr("tests.support.web.no_retry", repeat)
    visitor = browser(repo)
    assert "Retry worker 1?" in visitor.get(f"{RUN}/1/retry").text
    assert asked == []
    token = visitor.token(f"{RUN}/1/retry")
    answer = visitor.post(f"{RUN}/1/retry", {"token": token, "how": "retry"})
    assert answer.headers["location"] == "/repo/20261122-000000-abcdef"
    assert asked == [(repo, RUN_ID, 1)]
    assert Actions(repeat=repeat).repeat is repeat
