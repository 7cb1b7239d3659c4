"""Tests of `spec graph`, which draws the dependencies of tasks."""

import io
import sys
from xml.etree import ElementTree

import pytest

from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.commands import spec

RELEASE = """\
name: Release
tasks:
  - {id: design, task: "{{what}}"}
  - {id: backend, task: t, depends_on: [design]}
  - {id: frontend, task: t, depends_on: [design]}
  - {id: tests, task: t, depends_on: [design, backend, frontend]}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "release.yaml"
    path.write_text(RELEASE)
    return str(path)


def graph(*arguments: str) -> int:
    return run(["spec", "graph", *arguments, "--var", "what=Think of <b>"])


def test_list_is_printed_on_stdout(file, capsys):
    assert graph(file) == 0
    assert capsys.readouterr().out == (
        "1  design\n"
        "2  backend   after design\n"
        "   frontend  after design\n"
        "3  tests     after backend, frontend\n"
    )


def test_list_fits_into_the_terminal(file, capsys, monkeypatch):
    monkeypatch.setattr(spec, "terminal_width", lambda: 30)
    assert graph(file) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 30


def test_ascii_is_used_if_stdout_cannot_encode_a_sign(tmp_path, monkeypatch):
    file = tmp_path / "each.yaml"
    file.write_text("tasks: [{id: move, task: 'move {{item}} {{what}}', foreach: [a, b]}]")
    paper = io.BytesIO()
    with io.TextIOWrapper(paper, encoding="ascii", write_through=True) as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert graph(str(file)) == 0
        assert paper.getvalue().decode() == "1  move x 2\n"


def test_mermaid_format(file, capsys):
    assert graph(file, "--format", "mermaid") == 0
    assert capsys.readouterr().out == (
        '---\ntitle: "Release"\n---\nflowchart LR\n'
        '    n0["design"]\n    n1["backend"]\n    n2["frontend"]\n    n3["tests"]\n'
        "    n0 --> n1\n    n0 --> n2\n    n1 --> n3\n    n2 --> n3\n"
    )


def test_svg_format(file, capsys):
    assert graph(file, "--format", "svg") == 0
    root = ElementTree.fromstring(capsys.readouterr().out.encode())
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "Release"
    assert "Think of <b>" in titles


def test_unknown_format_is_refused(file, capsys):
    assert graph(file, "--format", "png") == 3
    assert "png" in capsys.readouterr().err


def test_invalid_file_is_not_drawn(tmp_path, capsys):
    path = tmp_path / "ring.yaml"
    path.write_text("tasks: [{id: a, task: t, depends_on: [b]}, {id: b, task: t, depends_on: [a]}]")
    assert run(["spec", "graph", str(path)]) == 3
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("error: ")
