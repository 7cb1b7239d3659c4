"""Tests of how text is split into lines."""

import ast
from pathlib import Path

import orchestrator
from orchestrator.base.text.split_lines import lines_of_output, split_lines

ALLOWED = {
    # `bytes.splitlines` splits at line feeds and carriage returns only.
    "base/text/redact.py": "bytes of a secret",
    "state/record/history.py": "bytes of JSON lines, in which carriage returns are escaped",
    "state/secret_files.py": "bytes of a secret",
    "faces/cli/commands/watch.py": "bytes of JSON lines, in which carriage returns are escaped",
    "faces/cli/commands/logs.py": "bytes of a log",
    "network/broker/ledger.py": "bytes of JSON lines, in which carriage returns are escaped",
    "network/broker/answers.py": "bytes of server-sent events, which end lines so",
    "worker/in_container/commit_graph.py": "bytes: hashes and types of objects",
    "worker/in_container/host_git.py": "bytes: git's error messages",
    "worker/in_container/store_refs.py": "types of objects",
    "worker/in_container/kept_commits.py": "bytes: hashes and types of objects",
}
"""Modules that may call `splitlines`, with the reason."""


def test_only_listed_modules_call_splitlines():
    top = Path(orchestrator.__file__).parent
    found = {
        str(path.relative_to(top))
        for path in top.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "splitlines"
    }
    assert found == {*ALLOWED}


def test_only_line_feeds_end_a_line():
    inside = "a\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029b\rc"
    assert split_lines(f"{inside}\r\n\nd\n") == [inside, "", "d"]
    assert split_lines("") == []
    assert split_lines("a") == ["a"]


def test_carriage_return_begins_a_line_of_output_again():
    assert lines_of_output("1%\r2%\r\ndone\n") == ["1%", "2%", "done"]
