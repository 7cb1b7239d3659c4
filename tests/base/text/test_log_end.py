"""Tests of the end of a log, as a reader of it would see it."""

import pytest

from orchestrator.base.text.decode import decode
from orchestrator.base.text.log_end import end_of_log


@pytest.mark.parametrize(
    ("log", "seen"),
    [
        ("a\nb\n", "a\nb"),
        ("a\r\nb\r\n", "a\nb"),
        ("  indented\n    more\n", "indented\n    more"),
        ("a\n\n \n\n\nb", "a\n\nb"),
        ("get 1%\rget 50%\rget 100%\ndone\n", "get 100%\ndone"),
        ("[==>  ] 12 of 40\r[=====>] 40 of 40\r\n", "[=====>] 40 of 40"),
        ("error: no\rget 1%\rget 2%", "error: no\nget 2%"),
        ("a\rb\rc\r", "a\nb\nc"),
        ("\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07", "red link"),
        ("2026-01-02T03:04:05.1234567Z one\n2026-01-02T03:04:05.1234567Z two", "one\ntwo"),
        ("unit\tRun tests\t\ufeff2026-01-02T03:04:05.1Z one\nunit\tRun tests\t2026-01-02T03:04:05Z "
         "##[error]Process completed with exit code 1.",
         "one\n##[error]Process completed with exit code 1."),
        ("2026-01-02T03:04:05.123Z 00O one\n2026-01-02T03:04:05.123Z 01E+two\n"
         "2026-01-02T03:04:05.123Z 00O", "one\ntwo"),
        ("\x1b[0Ksection_start:1560896352:my_section[collapsed=true]\r\x1b[0KHeader\nbody\n"
         "\x1b[0Ksection_end:1560896353:my_section\r\x1b[0K", "Header\nbody"),
        ("##[group]Run make\nmake: *** [all] Error 2\n##[endgroup]\n",
         "##[group]Run make\nmake: *** [all] Error 2"),
        ("2026-01-02 is a day\n", "2026-01-02 is a day"),
        ("x\u2028y", "x\u2028y"),
        *((log, "") for log in ("", " \n\t\r\n", "\x1b[0m", "\u200b\n\ufeff", "\0\0", "\r\r\r",
                                "2026-01-02T03:04:05Z \n2026-01-02T03:04:05Z", "\ufffd")),
    ],
)  # fmt: skip
def test_end_is_what_a_reader_sees(log: str, seen: str) -> None:
    assert end_of_log(log, limit=4000) == seen


@pytest.mark.parametrize("log", ["x" * 50, "x" * 50 + "\n", "x" * 50 + "\nend\n", "x\n" * 50])
def test_end_is_never_empty_because_lines_are_long(log: str) -> None:
    end = end_of_log(log, limit=20)
    assert len(end) == 20
    assert end[1:] == log.strip()[-19:]


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_every_encoding_of_unicode_is_decoded(encoding: str) -> None:
    text = "Fehler: J\u00f6rg \u2713\r\nat line 3\n" * 9
    assert decode(text.encode(encoding)) == text


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff\xfe", b"a\xffb", b"\0", b"a\0", b"\0\0\0\0"])
def test_any_bytes_can_be_decoded(data: bytes) -> None:
    assert isinstance(decode(data), str)
    assert "a" not in data.decode("latin-1") or "a" in decode(data)
