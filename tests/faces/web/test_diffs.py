"""Changes on pages: whole counts, moved files, directories, two columns, and marks in lines."""

import io
import json
from dataclasses import replace
from difflib import SequenceMatcher

import pytest

from orchestrator.faces.web import diffs
from orchestrator.faces.web import highlight as highlighting
from orchestrator.faces.web.diffs import MOST_LINES, read_diff, tree_of
from orchestrator.faces.web.highlight import highlight
from orchestrator.repository.commits.changes import file_changes
from orchestrator.repository.repository import Repository
from tests.support.repository import git, make_repository


def commit_file(repo, path, text):
    (repo / path).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "file")


def changed(repo, *, files, removed=()):
    """Return the diff of a commit that writes and removes files."""
    base = git(repo, "rev-parse", "HEAD")
    for path, text in files.items():
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        (repo / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    for path in removed:
        (repo / path).unlink()
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "change")
    return read_diff(Repository(repo), base, git(repo, "rev-parse", "HEAD"))


def test_counts_are_whole_though_the_lines_are_cut(tmp_path):
    repo = make_repository(tmp_path / "repo")
    many = {f"d/{number:03}.txt": "line\n" * 100 for number in range(150)}
    diff = changed(repo, files=many)
    assert (diff.total, diff.insertions, diff.deletions) == (150, 15_000, 0)
    assert len(diff.files) == 150
    assert not diff.is_whole
    assert {file.insertions for file in diff.files} == {100}
    assert sum(len(file.lines) for file in diff.files) <= MOST_LINES
    first, last = diff.files[0], diff.files[-1]
    assert (first.is_cut, len(first.lines)) == (False, 101)
    assert (last.is_cut, last.lines) == (True, ())


def test_a_moved_file_is_one_change(tmp_path):
    repo = make_repository(tmp_path / "repo")
    text = "".join(f"line {number}\n" for number in range(50))
    commit_file(repo, "old.py", text)
    diff = changed(repo, files={"new dir/ü.py": text + "more\n"}, removed=["old.py"])
    (file,) = diff.files
    assert (file.old_path, file.path, file.change) == ("old.py", "new dir/ü.py", "renamed")
    assert (file.insertions, file.deletions) == (1, 0)
    assert diff.is_whole


def test_kinds_of_changes_keep_their_names_and_lines(tmp_path):
    repo = make_repository(tmp_path / "repo")
    commit_file(repo, "gone.txt", "a\n")
    diff = changed(
        repo,
        files={
            "b.bin": b"\0\1", 'q"uote\t.txt': "x\n",
            "diff --git a b": "diff --git a/x b/x\n@@ -1 @@\n",
        },
        removed=["gone.txt"],
    )  # fmt: skip
    found = {file.path: file for file in diff.files}
    assert found["b.bin"].lines[0].text == "Binary file"
    assert found["gone.txt"].change == "deleted"
    assert [line.text for line in found["gone.txt"].lines if line.mark == "del"] == ["a"]
    texts = [line.text for line in found["diff --git a b"].lines if line.mark == "add"]
    assert texts == ["diff --git a/x b/x", "@@ -1 @@"]
    assert diff.is_whole


@pytest.mark.variants("kinds0-a b*", "kinds1-d*", "kinds2-a.txt")
@pytest.mark.parametrize("path", ["a.txt", 'd/ü "q".txt', "a b/a.txt b"])
@pytest.mark.parametrize(
    "kinds", [("100644", "120000"), ("120000", "100644"), ("100644", "160000")]
)
def test_a_file_whose_type_changes_hides_no_other_change(tmp_path, path, kinds):
    """Git writes such a file as two parts of a patch: a removed file and an added one."""
    repo = make_repository(tmp_path / "repo")
    base = git(repo, "rev-parse", "HEAD")
    for mode, text in zip(kinds, ("old", "new"), strict=True):
        for other in ("0.py", "b.py", "z.py"):
            (repo / other).write_text(f"{text}\n")
            git(repo, "add", other)
        kept = base if mode == "160000" else git(repo, "rev-parse", ":0.py")
        git(repo, "update-index", "--add", "--cacheinfo", f"{mode},{kept},{path}")
        git(repo, "commit", "-qm", text)
    diff = read_diff(Repository(repo), "HEAD~1", "HEAD")
    assert (diff.total, diff.is_whole) == (4, True)
    found = {file.path: [(line.mark, line.text) for line in file.lines] for file in diff.files}
    for other in ("0.py", "b.py", "z.py"):
        assert found[other][1:] == [("del", "old"), ("add", "new")]
    notes = [text for mark, text in found[path] if mark == "note" and "mode" in text]
    assert notes == [f"deleted file mode {kinds[0]}", f"new file mode {kinds[1]}"]
    changed = [text for mark, text in found[path] if mark in ("del", "add")]
    assert changed == ["old", f"Subproject commit {base}" if kinds[1] == "160000" else "new"]
    assert {file.change for file in diff.files} == {"modified"}


@pytest.mark.parametrize("sections", [1, 3])
def test_a_patch_whose_parts_do_not_match_the_files_is_not_whole(tmp_path, monkeypatch, sections):
    def miscounted(*given, **named):
        for change in file_changes(*given, **named):
            yield replace(change, sections=sections if change.path == "link" else 1)

    repo = make_repository(tmp_path / "repo")
    commit_file(repo, "link", "text")
    base = git(repo, "rev-parse", "HEAD")
    (repo / "link").unlink()
    (repo / "link").symlink_to("a.py")
    commit_file(repo, "z.py", "z\n")
    assert read_diff(Repository(repo), base, "HEAD").is_whole
    read_diff.cache_clear()
    monkeypatch.setattr(diffs, "file_changes", miscounted)
    assert not read_diff(Repository(repo), base, "HEAD").is_whole


def test_two_columns_show_a_changed_line_beside_the_new_one(tmp_path):
    repo = make_repository(tmp_path / "repo")
    commit_file(repo, "a.txt", "one\nthe old value\nthree\nfour\n")
    diff = changed(repo, files={"a.txt": "one\nthe new value\nthree\nmore\nfour\n"})
    (file,) = diff.files
    shown = [(old and old.text, new and new.text) for old, new in file.sides]
    assert shown[1:] == [
        ("one", "one"), ("the old value", "the new value"), ("three", "three"),
        (None, "more"), ("four", "four"),
    ]  # fmt: skip
    marked = [run.text for line in file.lines for run in line.runs if "w" in run.look.split()]
    assert marked == ["old", "new"]


def test_directories_with_one_entry_share_a_row(tmp_path):
    repo = make_repository(tmp_path / "repo")
    diff = changed(repo, files={"a/b/c/x": "1\n", "a/b/c/y": "2\n", "a/z/w": "3\n", "top": "4\n"})
    rows = [(row.depth, row.name, bool(row.file)) for row in tree_of(diff.files)]
    assert rows == [
        (0, "a/", False), (1, "b/c/", False), (2, "x", True), (2, "y", True),
        (1, "z/", False), (2, "w", True), (0, "top", True),
    ]  # fmt: skip
    numbers = [row.number for row in tree_of(diff.files) if row.file]
    assert [diff.files[number - 1].path for number in numbers] == [
        "a/b/c/x", "a/b/c/y", "a/z/w", "top",
    ]  # fmt: skip


def test_source_code_has_classes_and_keeps_its_text(tmp_path):
    repo = make_repository(tmp_path / "repo")
    text = "def area(x):  # <b>size</b>\n\n    return 'a' + str(7)\n"
    (file,) = changed(repo, files={"m.py": text}).files
    assert "\n".join(line.text for line in file.lines if line.mark == "add") + "\n" == text
    looks = {(run.look, run.text) for line in file.lines for run in line.runs}
    assert {("k", "def"), ("t", "area"), ("c", "# <b>size</b>"), ("m", "7")} <= looks


def test_code_that_takes_too_long_has_no_classes(monkeypatch):
    assert highlight([("a.py", "x = 1"), ("a.unknown", "y")])[0][0]
    slow = highlighting._LIMITS.__class__(memory=2**28, cpu=3, time=0.01)
    monkeypatch.setattr(highlighting, "_LIMITS", slow)
    assert highlight([("a.py", "x = 1")]) == []


def test_number_of_spans_is_bounded(monkeypatch, capsys):
    sources = [("a.py", "1+" * 50_000), ("b.py", "x = 1\n")]
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(sources)))
    highlighting._main()
    found = json.loads(capsys.readouterr().out)
    assert 50_000 < sum(len(line) for text in found for line in text) < 70_000


def test_words_of_a_page_are_compared_within_a_limit(tmp_path, monkeypatch):
    asked = []

    class Counting(SequenceMatcher):
        def __init__(self, **given):
            asked.append(len(given["a"]) * len(given["b"]))
            super().__init__(**given)

    monkeypatch.setattr(diffs, "SequenceMatcher", Counting)
    repo = make_repository(tmp_path / "repo")
    changed(repo, files={"a.txt": ("same" + "+-" * 50 + "\n") * 500, "0.txt": "+-" * 190 + "\n"})
    changed(repo, files={"a.txt": ("same" + "-++" * 33 + "\n") * 500, "0.txt": "-+" * 190 + "\n"})
    assert len(asked) > 100
    assert sum(asked) <= 2_000_000
    assert max(asked) <= 128 * 128
