"""What a worker prints must not steer a terminal."""

import unicodedata

import pytest

from orchestrator.sanitize import lines, one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("  trimmed \n", "trimmed"),
        ("tab\tline\nreturn\r.", "tab line return ."),
        ("\x1b[2J\x1b]0;title\x07", "\ufffd[2J\ufffd]0;title\ufffd"),
        ("\x9b31m", "\ufffd31m"),
        ("del\x7f nul\x00", "del\ufffd nul\ufffd"),
        ("bidi\u202egnp.exe\u2066", "bidi\ufffdgnp.exe\ufffd"),
        ("zero\u200bwidth\ufeff", "zero\ufffdwidth\ufffd"),
        ("line\u2028para\u2029.", "line\ufffdpara\ufffd."),
        ("surrogate\udcff", "surrogate\ufffd"),
        ("日本 é 🙂", "日本 é 🙂"),
        ("", ""),
    ],
)
def test_shown_as(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_nothing_that_steers_gets_through() -> None:
    everything = "".join(chr(code) for code in range(0x110000) if chr(code) not in "\t\n\r")
    shown = one_line(everything, limit=0x110000)
    left = {unicodedata.category(character) for character in shown}
    assert left.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})
    shown.encode("utf-8")


@pytest.mark.parametrize("length", [9, 10, 11, 10_000_000])
def test_it_is_bounded(length: int) -> None:
    shown = one_line("x" * length, limit=10)
    assert shown == ("x" * length if length <= 10 else "x" * 9 + "…")


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\tone\n  two\n", "\tone\n  two\n"),
        ("\x1b[1;31mred\x1b[m\n", "red\n"),
        ("\x1b[2J\x1b]8;;x\x07", "\ufffd[2J\ufffd]8;;x\ufffd"),
        ("1%\r99%\r\nend\r\n", "1%\n99%\nend\n"),
        ("a\u202eb\x9bc\x7f\u2028\ud800é見", "a\ufffdb\ufffdc\ufffd\ufffd\ufffdé見"),
        ("a\x0bb\x0cc\x85", "a\ufffdb\ufffdc\ufffd"),
    ],
)
def test_lines_keep_their_form_and_steer_nothing(printed: str, shown: str) -> None:
    assert lines(printed) == shown
