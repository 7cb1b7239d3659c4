"""Tests of colours in logs: a fixed set of looks, and text without control characters."""

import random
import re

import pytest

from orchestrator.base.text.sanitize import output_lines
from orchestrator.faces.web.ansi import MOST_RUNS, runs_of

LOOK = re.compile(
    r"(f(1[0-5]|[0-9])|k[0-7]|bold|dim|italic|underlined)( (bold|dim|italic|underlined))*"
)


def looks(text: str) -> list[tuple[str, str]]:
    return [tuple(run) for run in runs_of(text)]  # type: ignore[misc]


@pytest.mark.parametrize(("text", "found"), [
    ("plain", [("", "plain")]),
    ("", []),
    ("\x1b[31mred\x1b[0m end", [("f1", "red"), ("", " end")]),
    ("\x1b[1;32mok\x1b[22m no\x1b[m", [("f2 bold", "ok"), ("f2", " no")]),
    ("\x1b[30;42m PASS \x1b[49mx", [("k2", " PASS "), ("f0", "x")]),
    ("\x1b[38;5;208mo\x1b[38;2;10;20;230mb\x1b[39md", [("f3", "o"), ("f4", "b"), ("", "d")]),
    ("\x1b[38:2::10:20:230mb\x1b[48:5:1mk", [("f4", "b"), ("k1", "k")]),
    ("\x1b[38;5mx\x1b[38mx\x1b[99;;mx\x1b[38;7;1mx", [("", "xxx"), ("bold", "x")]),
    ("\x1b[31ma\r\x1b[0m\nb\rc", [("f1", "a"), ("", "\nb\nc")]),
    ("\x1b[31m\x1b[31m", []),
    ("\x1b[38;5;99999999999999999999mx", [("f15", "x")]),
])  # fmt: skip
def test_control_sequences_become_looks(text, found):
    assert looks(text) == found


def test_whatever_a_worker_prints_only_known_looks_and_visible_text_leave():
    chance = random.Random(5)
    parts = ["\x1b[", "38;", "48;", "2;", "5;", "7", ";", ":", "m", "\x1b", "9", "\r", "\n", "<b>",
             "\x1b]8;;x\x07", "\u202e", "31", "J", "\x9b31m", '"']  # fmt: skip
    for _ in range(2000):
        text = "".join(chance.choices(parts, k=30))
        runs = runs_of(text)
        assert all(not run.look or LOOK.fullmatch(run.look) for run in runs), text
        assert "".join(run.text for run in runs) == output_lines(text)


def test_the_number_of_runs_is_bounded():
    runs = runs_of("\x1b[31mr\x1b[32mg" * MOST_RUNS)
    assert len(runs) <= MOST_RUNS + 1
    assert "".join(run.text for run in runs) == "rg" * MOST_RUNS
    assert runs[0].look == ""
    assert runs[-1].look == "f2"
