"""Tests of logs: bounded pieces that neither miss nor repeat anything, and no other file."""

import json
import re
import time
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.faces.web import logs
from orchestrator.faces.web.logs import (
    BURST,
    CHUNK,
    MOST_FOUND,
    MOST_TIMED,
    Log,
    find_error,
    find_lines,
    logs_of,
    read_after,
    read_at,
    read_before,
    read_end,
    read_rest,
)
from tests.support.reports import RUN_ID
from tests.support.web import begun, browser, ended_run, result_of, write_run

RUN = f"/repo/{RUN_ID}"


def log_of(path) -> Log:
    return Log("stdout", "stdout", path, path.stat().st_size)


def test_all_pieces_together_are_the_log(tmp_path):
    path = tmp_path / "stdout.log"
    path.write_bytes(b"".join(b"line %d of many\n" % n for n in range(60_000)))
    piece = read_end(log_of(path))
    pieces = [piece]
    while piece.begin:
        assert len(piece.text) <= CHUNK
        piece = read_before(log_of(path), piece.begin)
        pieces.insert(0, piece)
    assert "".join(one.text for one in pieces) == path.read_text()
    assert all(a.end == b.begin for a, b in pairwise(pieces))


def test_following_reads_whole_lines_and_skips_what_is_too_much(tmp_path):
    path = tmp_path / "stdout.log"
    path.write_bytes(b"one\ntwo\nunfin")
    piece = read_after(log_of(path), 0)
    assert (piece.text, piece.end) == ("one\ntwo\n", 8)
    assert read_rest(log_of(path), 8).text == "unfin"
    path.write_bytes(b"one\ntwo\n" + b"x" * 99 + b"\n" + b"many lines\n" * 100_000)
    piece = read_after(log_of(path), 8)
    assert len(piece.text) <= BURST
    assert piece.skipped == piece.begin - 8 > 0
    assert piece.end == piece.size
    path.write_bytes(b"new\n")
    assert read_after(log_of(path), 8).text == "new\n", "a log that was replaced is read again"


def test_a_line_without_end_does_not_stop_the_log(tmp_path):
    path = tmp_path / "stdout.log"
    path.write_bytes(b"x" * (3 * CHUNK))
    piece = read_end(log_of(path))
    assert 0 < len(piece.text) <= CHUNK
    assert read_before(log_of(path), piece.begin).begin < piece.begin
    assert read_after(log_of(path), 0).end > 0
    path.write_bytes(b"y" * (CHUNK - 1))
    assert read_after(log_of(path), 0).text == ""
    assert len(read_rest(log_of(path), 0).text) == CHUNK - 1


def test_control_sequences_and_broken_bytes_are_made_visible(tmp_path):
    path = tmp_path / "stdout.log"
    path.write_bytes(b"\x1b[31mred\x1b[0m \x1b]0;title\x07 \xff\xfe bar\r\n\xe2\x80\xae")
    assert read_end(log_of(path)).text == "red  \ufffd\ufffd bar\n\ufffd"


def test_colours_are_shown_on_the_page_and_in_what_follows(repo):
    run = ended_run(repo, result_of(1))
    (run.worker(1) / "stdout.log").write_bytes(b"\x1b[1;31mFAILED\x1b[0m <b>x</b>\n")
    visitor = browser(repo)
    page = visitor.get(f"{RUN}/1").text
    assert '<span class="f1 bold">FAILED</span> &lt;b&gt;x&lt;/b&gt;\n' in page
    piece = json.loads(visitor.get(f"{RUN}/1/text/stdout?after=0").text)
    assert piece["runs"] == [["f1 bold", "FAILED"], ["", " <b>x</b>\n"]]


def test_a_page_that_is_refreshed_does_not_send_the_log_again(repo):
    run = ended_run(repo, result_of(1))
    (run.worker(1) / "stdout.log").write_text("said once\n")
    visitor = browser(repo)
    assert "said once" in visitor.get(f"{RUN}/1").text
    again = visitor.get(f"{RUN}/1", x_version="old").text
    assert "said once" not in again
    assert 'data-begin="0" data-end="0"' in again


def test_only_logs_are_listed_and_links_are_not_followed(repo, tmp_path):
    run = ended_run(repo, result_of(1))
    secret = tmp_path / "secret"
    secret.write_text("root:x:0:0")
    worker = run.worker(1)
    (worker / "stdout.log").write_text("fine\n")
    (worker / "stderr.log").symlink_to(secret)
    (worker / "check-0.log").symlink_to("/dev/zero")
    (worker / "other.log").write_text("no\n")
    (worker / "setup.log").mkdir()
    assert [log.name for log in logs_of(run, 1)] == ["stdout"]
    visitor = browser(repo)
    for kind in ("log", "text", "raw"):
        for name in ("stderr", "check-0", "other", "setup", "result", "stdout.log", "stdout.9"):
            answer = visitor.get(f"{RUN}/1/{kind}/{name}")
            assert answer.status == 404, (kind, name)
            assert "root:" not in answer.text
    assert visitor.get(f"{RUN}/1/raw/stdout").body == b"fine\n"


def test_download_is_a_file_that_no_browser_shows(repo):
    run = ended_run(repo, result_of(1))
    (run.worker(1) / "stdout.log").write_bytes(b"<script>\x1b\x00\xff")
    answer = browser(repo).get(f"{RUN}/1/raw/stdout")
    assert answer.body == b"<script>\x1b\x00\xff"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment; ")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_page_of_a_huge_log_is_small_and_older_output_has_a_link(repo):
    run = ended_run(repo, result_of(1))
    with (run.worker(1) / "stdout.log").open("wb") as file:
        file.truncate(1024**3)
        file.seek(0, 2)
        file.write(b"\nthe end\n")
    visitor = browser(repo)
    page = visitor.get(f"{RUN}/1")
    assert len(page.body) < 4 * CHUNK
    assert "the end" in page.text
    assert "1 GiB" in page.text
    before = page.text.partition('href="?before=')[2].partition('"')[0]
    older = visitor.get(f"{RUN}/1?before={before}")
    assert older.status == 200
    assert "the end" not in older.text
    for odd in ("-1", "x", "9" * 30, "1e3", ""):
        assert visitor.get(f"{RUN}/1?before={odd}").status == 200
        assert visitor.get(f"{RUN}/1/text/stdout?after={odd}").status == 200


@pytest.mark.parametrize("is_live", [True, False])
def test_the_rest_of_a_log_arrives_at_the_end(repo, is_live):
    specs = [WorkerSpec(worker_id=1, task="t", model=None)]
    run = write_run(repo, specs, begun(specs))
    run.worker(1).mkdir()
    (run.worker(1) / "stdout.log").write_text("a\nb")
    if not is_live:
        run.release()
    visitor = browser(repo)
    piece = json.loads(visitor.get(f"{RUN}/1/text/stdout?after=0").text)
    assert piece["runs"] == [["", "a\n" if is_live else "a\nb"]]
    assert piece["ended"] is not is_live
    run.release()


def test_a_line_that_ends_with_colours_after_its_return_is_shown(tmp_path):
    path = tmp_path / "stdout.log"
    path.write_bytes(b"\x1b[31mtext\r\x1b[0m\n1\r2\x1b[1m\r\x1b[0m\r\n3\r\x1b[K\nnext\n")
    piece = read_end(log_of(path))
    assert piece.text == "text\n2\n\nnext\n"
    assert piece.runs[0] == ("f1", "text")


def test_only_the_last_state_of_a_line_that_is_written_again_is_shown(tmp_path):
    path = tmp_path / "stdout.log"
    path.write_bytes(b"\x1b[31m 1%\r 50%\r100%\r\nred\x1b[0m\r\nplain\ra\x1b[K\n")
    piece = read_end(log_of(path))
    assert piece.text == "100%\nred\na\n"
    assert [tuple(run) for run in piece.runs] == [("f1", "100%\nred"), ("", "\na\n")]


def test_a_long_line_takes_linear_time(tmp_path):
    path = tmp_path / "stdout.log"
    for part in (b"x", b"\r", b"x\r", b"\x1b[31m\r"):
        path.write_bytes(part * (CHUNK // len(part)))
        began = time.process_time()
        read_end(log_of(path))
        assert time.process_time() - began < 5


def test_lines_of_a_log_are_found_with_their_numbers(tmp_path, monkeypatch):
    path = tmp_path / "stdout.log"
    path.write_bytes(b"one\n\x1b[31mNeedle <b>\x1b[0m\n" + b"x" * 1000 + b"\nend needle")
    found, more = find_lines(log_of(path), "needle")
    assert [(one.number, one.text) for one in found] == [(2, "Needle <b>"), (4, "end needle")]
    assert not more
    for one in found:
        assert one.text.split()[0] in read_at(log_of(path), one.begin).text
    assert find_lines(log_of(path), "missing") == ([], False)
    path.write_bytes(b"needle\n" * (MOST_FOUND + 5))
    assert [len(find_lines(log_of(path), "needle")[0]), find_lines(log_of(path), "needle")[1]] == [
        MOST_FOUND, True,
    ]  # fmt: skip
    monkeypatch.setattr(logs, "CHUNK", 32)
    path.write_bytes(b"a" * 40 + b"needle" + b"b" * 40 + b"\nneedle at the end")
    assert find_lines(log_of(path), "at the end")[0][0].begin == 87


def test_the_first_error_of_a_log_is_found(tmp_path):
    path = tmp_path / "stdout.log"
    path.write_bytes(b"0 errors\nno errors\nterror\nsrc/a.c:1: error: bad\nfailed\n")
    error = find_error(log_of(path))
    assert error is not None
    assert (error.number, error.text) == (4, "src/a.c:1: error: bad")
    path.write_bytes(b"all fine\n")
    assert find_error(log_of(path)) is None
    # The colours of GCC and of other programs stand directly before the word.
    path.write_bytes(b"ok\na.c:1: \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[Kno \x1b[1mfoo\x1b[0mbar\n")
    error = find_error(log_of(path))
    assert error is not None
    assert (error.number, error.text) == (2, "a.c:1: error: no foobar")
    assert find_lines(log_of(path), "foobar") == ([error], False)
    path.write_bytes(b"\x1b[31mfatal: at the end")
    assert find_error(log_of(path)) is not None


def test_a_found_line_is_shown_with_links_to_what_is_around(repo):
    run = ended_run(repo, result_of(1))
    rows = [f"line {number}" for number in range(50_000)]
    rows[20_000] = "an Error <i>here</i>"
    (run.worker(1) / "stdout.log").write_text("\n".join(rows) + "\n")
    visitor = browser(repo)
    page = visitor.get(f"{RUN}/1?find=error").text
    place = re.search(r'href="\?at=(\d+)&amp;find=error"><span class="no">20001</span>', page)
    assert place is not None
    assert "an Error &lt;i&gt;here&lt;/i&gt;" in page
    for query in (f"at={place[1]}", "first=error"):
        shown = visitor.get(f"{RUN}/1?{query}").text
        assert "line 19999\n" in shown
        assert '<mark id="hit">an Error &lt;i&gt;here&lt;/i&gt;\n</mark>' in shown
        assert "line 20001\n" in shown
        assert "line 49999" not in shown
        assert "Show earlier output" in shown
        assert "Show later output" in shown
    assert "No line contains this text" in visitor.get(f"{RUN}/1?find=zzz").text
    assert visitor.get(f"{RUN}/1?at=99999999").status == 200


def test_a_search_ends_in_time(tmp_path, monkeypatch):
    path = tmp_path / "stdout.log"
    path.write_bytes(b"x\n" * CHUNK)
    monkeypatch.setattr(logs, "_PATIENCE", 0.0)
    assert find_lines(log_of(path), "y") == ([], True)


def timed_log(directory, content, *entries) -> Log:
    path = directory / "stdout.log"
    path.write_bytes(content)
    began = datetime(2026, 11, 26, 23, 59, 50, tzinfo=UTC).timestamp()
    lines = (f"{offset} {began + second:.0f}\n" for offset, second in entries)
    path.with_suffix(".times").write_text("".join(lines))
    return log_of(path)


def test_lines_have_the_time_at_which_they_arrived(tmp_path):
    log = timed_log(tmp_path, b"one\ntwo\nthree\nfour", (0, 0), (4, 3), (14, 12))
    whole = read_end(log)
    assert whole.times == ("23:59:50Z", "23:59:53Z", "23:59:53Z", "00:00:02Z")
    assert whole.text == "one\ntwo\nthree\nfour"
    assert [run.text for run in whole.runs][:3] == ["23:59:50Z ", "one\n", "23:59:53Z "]
    assert read_after(log, 8).times == ("23:59:53Z",), "without the line that is not finished"
    assert read_rest(log, 14).times == ("00:00:02Z",)
    assert read_before(log, 8).times == ("23:59:50Z", "23:59:53Z")
    there = read_at(log, 4)
    first, after = there.hit
    assert [run.text for run in there.runs[first:after]] == ["23:59:53Z ", "two\n"]


def test_no_output_is_taken_for_a_time_or_moves_one(tmp_path):
    hostile = (
        b"12:00:00 x\n\x1b[31mred\n\nstill \x1b]0;a\nb\x07\x1b[0m\r\n"
        b"a\rb\rc\n\x1b[2K\r\x1b[0m\n\xe2\x80\xa8\x0b\x0c\x85\n\r\r\n"
    )
    entries = [(found.end(), number) for number, found in enumerate(re.finditer(b"\n", hostile))]
    content = hostile + b"last line\n"
    piece = read_end(timed_log(tmp_path, content, (0, 0), *entries))
    assert len(piece.times) == content.count(b"\n")
    place = next(n for n, run in enumerate(piece.runs) if run.text == "last line\n")
    assert piece.runs[place - 1] == ("time", f"23:59:{50 + len(entries) - 1}Z ")
    plain = Log("stdout", "stdout", tmp_path / "plain.log", len(content))
    plain.path.write_bytes(content)
    assert piece.text == read_end(plain).text


def test_many_lines_have_a_time_only_where_it_changes(tmp_path):
    log = timed_log(tmp_path, b"\n" * CHUNK, (0, 0), (100, 1), (90_000, 2))
    assert read_end(log).times == ("23:59:50Z", "23:59:51Z", "23:59:52Z")
    assert len(read_before(log, MOST_TIMED - 1).times) == MOST_TIMED - 1


def test_a_running_worker_has_no_output_for_a_moment_between_turns(repo):
    specs = [WorkerSpec(worker_id=1, task="x", model=None)]
    run = write_run(repo, specs, begun(specs))
    visitor = browser(repo)
    answer = visitor.get(f"{RUN}/1/text/stdout?after=500")
    assert (answer.status, json.loads(answer.text)["end"]) == (200, 0)
    assert visitor.get(f"{RUN}/1/raw/stdout").status == 404
    run.release()
    assert visitor.get(f"{RUN}/1/text/stdout?after=500").status == 404
