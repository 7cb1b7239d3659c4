"""Tests of what a worker handed over: listed, downloaded as a harmless file, and nothing else."""

import pytest

from tests.support.reports import RUN_ID
from tests.support.web import browser, ended_run, result_of

RUN = f"/repo/{RUN_ID}"
PATHS = ["out/report.html", ".bashrc", 'a"\r\nX: y\n.txt', "link.txt", "folder/inner.txt",
         "../../run.json", "/etc/passwd", "gone.txt", "out"]  # fmt: skip


@pytest.fixture
def visitor(repo):
    """Return a browser of a run whose worker handed over files, some of them hostile."""
    run = ended_run(repo, result_of(1, artifacts=PATHS))
    place = run.worker(1) / "artifacts"
    (place / "out").mkdir(parents=True)
    (place / "out" / "report.html").write_bytes(b"<script>alert(1)</script>")
    (place / ".bashrc").write_text("evil")
    (place / PATHS[2]).write_text("x")
    (place / "link.txt").symlink_to("/etc/passwd")
    elsewhere = run.worker(1) / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "inner.txt").write_text("root:x")
    (place / "folder").symlink_to(elsewhere)
    (run.worker(1) / "findings.md").write_text("# Found <b>this</b>\x1b[2J\n")
    return browser(repo)


def test_artifacts_are_downloaded_as_files_that_no_browser_shows(visitor):
    answer = visitor.get(f"{RUN}/1/artifact/1")
    assert answer.body == b"<script>alert(1)</script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="report.html"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    names = [visitor.get(f"{RUN}/1/artifact/{n}").headers["content-disposition"] for n in (2, 3)]
    assert names == ['attachment; filename="bashrc"', 'attachment; filename="a_X_y_.txt"']


@pytest.mark.parametrize("number", [0, 4, 5, 6, 7, 8, 9, 10, 10**12])
def test_links_directories_and_paths_outside_are_not_served(visitor, number):
    answer = visitor.get(f"{RUN}/1/artifact/{number}")
    assert answer.status == 404
    assert b"root:" not in answer.body


def test_page_lists_findings_and_the_artifacts_that_exist(visitor):
    page = visitor.get(f"{RUN}/1/findings").text
    assert "Found &lt;b&gt;this&lt;/b&gt;\ufffd[2J" in page
    assert page.count('download aria-label="Download') == 3
    assert "report.html" in page
    assert "/etc/passwd" not in page
    assert ">Findings" in visitor.get(f"{RUN}/1").text


def test_worker_that_handed_over_nothing_has_no_such_page(repo):
    ended_run(repo, result_of(1))
    visitor = browser(repo)
    assert visitor.get(f"{RUN}/1/findings").status == 404
    assert ">Findings" not in visitor.get(f"{RUN}/1").text
