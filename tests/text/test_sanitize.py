"""Tests that output of a worker is made harmless for a terminal."""

import unicodedata

import pytest

from orchestrator.text.sanitize import lines, one_line


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
        ("❤\ufe0f 1\ufe0f\u20e3 ©\ufe0e", "❤ 1\u20e3 ©"),
        ("a\ufe0f❤\ufe0f\ufe0f1\ufe0f", "a\ufffd❤\ufffd1\ufffd"),
        ("\u3164\u115f\u1160\uffa0\u2800\u034f", "\ufffd" * 6),
        ("\U000e0041\U000e0100\U000e01ef\u180b\u17b4", "\ufffd" * 5),
        ("", ""),
    ],
)
def test_text_is_shown_as_expected(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_control_characters_are_replaced() -> None:
    everything = "".join(chr(code) for code in range(0x110000) if chr(code) not in "\t\n\r")
    shown = one_line(everything, limit=0x110000)
    left = {unicodedata.category(character) for character in shown}
    assert left.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})
    shown.encode("utf-8")
    assert set(INVISIBLE).isdisjoint(shown)
    assert set(INVISIBLE).isdisjoint(lines(everything))


INVISIBLE = (
    *"\u034f\u115f\u1160\u17b4\u17b5\u2065\u2800\u3164\uffa0",
    *map(chr, [*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0000, 0xE1000)]),
)


def test_shortened_emoji_is_marked():
    assert one_line("❤\ufe0f" * 6, limit=5) == "❤❤❤❤…"
    assert one_line("❤\ufe0f" * 5, limit=5) == "❤❤❤❤❤"


@pytest.mark.parametrize("length", [9, 10, 11, 10_000_000])
def test_line_is_bounded(length: int) -> None:
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
def test_lines_keep_their_indentation_and_are_harmless(printed: str, shown: str) -> None:
    assert lines(printed) == shown
