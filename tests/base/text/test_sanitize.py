"""Tests that output of a worker is made harmless for a terminal."""

import time
import unicodedata

import pytest

from orchestrator.base.text.sanitize import (
    begun_sequence,
    last_output_line,
    lines,
    one_line,
    output_line,
    output_lines,
)


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


# What gcc, cargo, npm, tput and OSC 8 links print, and sequences that never end.
SEQUENCES = [
    ("\x1b[1m\x1b[Ka.c:3:5:\x1b[m\x1b[K \x1b[Kerror: \x1b[m\x1b[Kno", "a.c:3:5: error: no"),
    ("\x1b[38;2;1;2;3mred\x1b[0m \x1b[38:5:7mgrey\x1b(B\x1b[m", "red grey"),
    ("\x1b]8;;https://host.example/\x1b\\link\x1b]8;;\x07 \x1b]0;title\x07end", "link end"),
    ("\x1bP1$r0m\x1b\\dcs\x1b_apc\x1b\\ \x1b^pm\x1b\\\x1bXsos\x1b\\", "dcs"),
    ("\x1b[?25l\x1b[2K\x1b[1Gdone\x1b[?25h\x1b7\x1b8\x1bM\x1bc\x1b=", "done"),
    ("\x1b]0;never ended", "\ufffd]0;never ended"),
    ("\x1b[31", "\ufffd[31"),
    ("\x1b\x1b[31mtwo\x1b", "\ufffdtwo\ufffd"),
]  # fmt: skip


@pytest.mark.parametrize(("printed", "shown"), SEQUENCES)
def test_whole_sequences_of_a_programs_output_are_removed(printed, shown):
    assert output_line(printed) == shown
    assert output_lines(f"{printed}\n{printed}").count(shown) == 2


def test_a_sequence_never_hides_the_next_line():
    assert output_lines("\x1b]0;a\nb\x07c\n") == "\ufffd]0;a\nb\ufffdc\n"


def test_sequences_do_not_count_for_the_length_of_a_line():
    assert output_line("\x1b[31mx\x1b[0m" * 10, limit=10) == "x" * 10
    assert output_line("\x1b[31m" * 100_000 + "x", limit=10) == ""


@pytest.mark.parametrize("whole", [text for text, _ in SEQUENCES[:5]])
def test_a_sequence_in_two_chunks_is_completed(whole):
    for cut in range(len(whole)):
        held = begun_sequence(whole[:cut])
        assert output_lines(whole[:held]) + output_lines(whole[held:]) == output_lines(whole)


def test_hostile_sequences_take_linear_time():
    for part in ("\x1b]", "\x1b[", "\x1b[1;", "\x1bP", "\x1b ", "\x1b]" + "a" * 3999):
        text = part * (2_000_000 // len(part))
        began = time.process_time()
        output_lines(text)
        begun_sequence(text)
        assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("cause\n\x1b[0m\n \n", "cause"),
        ("10%\r20%\r\x1b[K", "20%"),
        ("a\u2028b\r\n", "a\ufffdb"),
        ("\x1b[31m\n\x1b[0m", ""),
        ("", ""),
    ],
)
def test_last_line_of_output_is_what_a_terminal_shows_last(text: str, line: str) -> None:
    assert last_output_line(text) == line
