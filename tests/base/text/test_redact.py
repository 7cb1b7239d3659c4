"""Tests that every encoding of a value is redacted in streams, and nothing else."""

import base64
import json
import random
import re
import string
import subprocess
from urllib.parse import quote, quote_plus

import pytest

from orchestrator.base.results import Status, WorkerResult
from orchestrator.base.text.redact import Redactor, secret_variables
from orchestrator.base.text.sanitize import without_sequences_in

TOKEN = b's3cr3t/T0ken+with?odd&chars="q" \\ end'
PEM = "\n".join(
    ["-----BEGIN KEY-----", *(f"line{n:02}" + "QmFzZTY0" * 7 for n in range(12)), "-----END KEY--"]
).encode()


def encodings(value: bytes) -> dict[str, bytes]:
    text = value.decode()
    spelt = {
        "raw": value,
        "hex": value.hex().encode(),
        "HEX": value.hex().upper().encode(),
        "url": quote(value).encode(),
        "url-all": quote(value, safe="").encode(),
        "url-plus": quote_plus(value).encode(),
        "url-lower": re.sub("%..", lambda c: c[0].lower(), quote(value, safe="")).encode(),
        "json": json.dumps(text).encode(),
        "json-slashes": json.dumps(text).replace("/", "\\/").encode(),
    }  # fmt: skip
    for before in range(3):
        padded = b"key: "[: 3 + before] + value + b" and more"
        spelt[f"base64-{before}"] = base64.b64encode(padded)
        spelt[f"base64url-{before}"] = base64.urlsafe_b64encode(padded)
    return spelt


def stream(redactor: Redactor, chunks: list[bytes]) -> bytes:
    fed = redactor.stream()
    return b"".join([*(fed.feed(chunk) for chunk in chunks), fed.flush()])


@pytest.mark.parametrize("name", encodings(TOKEN))
def test_every_encoding_is_found_across_chunk_boundaries(name: str) -> None:
    spelt = encodings(TOKEN)[name]
    redactor = Redactor({"API": TOKEN})
    data = b"before " + spelt + b"\nafter"
    whole = redactor.data(data)
    assert b"[redacted:API]" in whole
    # In base64, the first and last character may also encode bits of neighbouring bytes.
    assert len(whole) <= len(data) - len(spelt) + len(b"[redacted:API]") + 24
    assert whole.startswith(b"before ")
    assert whole.endswith(b"\nafter")
    for cut in range(len(data) + 1):
        assert stream(redactor, [data[:cut], data[cut:]]) == whole, cut
    assert stream(redactor, [data[i : i + 1] for i in range(len(data))]) == whole


SEQUENCES = (
    b"\x1b[31m",
    b"\x1b[0m",
    b"\x1b]8;;http://x\x1b\\",
    b"\x1b]0;title\x07",
    b"\x1b(B",
    b"\x1bM",
)


def coloured(value: bytes, every: int) -> bytes:
    """Return a value with an escape sequence after every few bytes."""
    parts = [value[at : at + every] for at in range(0, len(value), every)]
    return (
        b"".join(part + SEQUENCES[place % len(SEQUENCES)] for place, part in enumerate(parts[:-1]))
        + parts[-1]
    )


@pytest.mark.parametrize("every", [1, 3, 7])
@pytest.mark.parametrize("name", ["raw", "hex", "base64-1"])
def test_value_between_escape_sequences_is_found(name: str, every: int) -> None:
    redactor = Redactor({"API": TOKEN})
    data = b"\x1b[1mbefore " + coloured(encodings(TOKEN)[name], every) + b"\x1b[m after\n"
    whole = redactor.data(data)
    shown = without_sequences_in(whole)
    assert redactor.names_in(data) == {"API"}
    assert b"[redacted:API]" in shown
    assert Redactor({"API": TOKEN}).names_in(shown) == frozenset()
    assert whole.startswith(b"\x1b[1mbefore ")
    assert whole.endswith(b"\x1b[m after\n")
    for size in (1, 2, 5, 11):
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        assert without_sequences_in(stream(redactor, chunks)) == shown


def test_value_in_an_escape_sequence_is_found() -> None:
    redactor = Redactor({"API": TOKEN})
    data = b"\x1b]0;" + TOKEN + b"\x07 text"
    assert redactor.data(data) == b"\x1b]0;[redacted:API]\x07 text"
    assert stream(redactor, [data[i : i + 1] for i in range(len(data))]) == redactor.data(data)


def test_random_coloured_streams_show_no_value() -> None:
    random.seed(22)
    for _ in range(300):
        value = "".join(random.choices("ab", k=random.randint(8, 12))).encode()
        redactor = Redactor({"X": value, "Y": value[2:] + b"ba"})
        pieces = [*SEQUENCES, *(bytes([one]) for one in value * 3), value[:5], value[5:], b"\n"]
        data = b"".join(random.choices(pieces, k=60))
        size = random.randint(1, 9)
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        for shown in (redactor.data(data), stream(redactor, chunks)):
            seen = without_sequences_in(shown)
            assert not [one for one in (value, value[2:] + b"ba") if one in seen], (data, shown)


def test_endless_escape_sequences_are_not_held_back() -> None:
    fed = Redactor({"API": TOKEN}).stream()
    given = len(fed.feed(TOKEN[:5]))
    for _ in range(40):
        given += len(fed.feed(b"\x1b[m" * 1000))
    assert given > 50_000
    text = b"plain \x1b[31mtext\x1b[0m\n" * 1000
    assert Redactor({"API": b"correct horse"}).stream().feed(text) == text, "nothing is held back"


def test_random_streams_are_redacted_independent_of_chunks() -> None:
    random.seed(20)
    alphabet = "ab"  # values that overlap themselves and each other
    for _ in range(300):
        values = {
            name: "".join(random.choices(alphabet, k=random.randint(8, 12))).encode()
            for name in "XYZ"
        }
        redactor = Redactor(values)
        noise = "".join(random.choices(alphabet, k=60)).encode()
        data = b"".join(random.sample([*values.values(), noise, noise[:7]], 5))
        chunks = []
        rest = data
        while rest:
            cut = random.randint(1, 9)
            chunks.append(rest[:cut])
            rest = rest[cut:]
        whole = redactor.data(data)
        assert stream(redactor, chunks) == whole
        assert redactor.names_in(whole) == frozenset()


def test_other_data_is_neither_changed_nor_held_back() -> None:
    random.seed(21)
    redactor = Redactor({"API": b"correct horse battery"})
    fed = redactor.stream()
    for _ in range(200):
        # Random bytes without the value's first letter, then a text that begins like the value.
        chunk = random.randbytes(random.randint(0, 300)).replace(b"c", b"") + b"correct hat\n"
        assert fed.feed(chunk) == chunk
    assert fed.flush() == b""


def test_held_back_data_is_bounded() -> None:
    value = b"A" * 32
    fed = Redactor({"API": value}).stream()
    given = sum(len(fed.feed(b"A" * 10)) for _ in range(3))
    assert given == 0
    assert fed.feed(b"A" * 9 + b"\n") == b"[redacted:API]" + b"A" * 7 + b"\n"
    fed.feed(b"A" * 31)
    assert fed.flush() == b"A" * 31


@pytest.mark.parametrize("before", range(3))
def test_every_line_of_a_long_value_is_found(before: int) -> None:
    redactor = Redactor({"PEM": PEM})
    lines = PEM.split(b"\n")
    shown = redactor.data(PEM + b" | " + lines[5] + base64.b64encode(b"x" * before + PEM))
    for line in lines:
        assert line not in shown
        for start in range(3):
            if len(line) > 24:
                assert base64.b64encode(line[start : start + 24]) not in shown
    left = shown.replace(b"[redacted:PEM]", b"")
    assert len(left) < len(PEM) / 10


@pytest.mark.parametrize("command", ["base64", "base64 -w64", "xxd -p", "base64 -w0"])
def test_output_of_encoding_programs_is_redacted(command: str) -> None:
    words = command.split()
    if words[0] == "xxd":
        text = PEM.hex()
        said = "\n".join(text[i : i + 60] for i in range(0, len(text), 60)).encode()
    else:
        said = subprocess.run(words, input=PEM, capture_output=True, check=True).stdout
    shown = Redactor({"PEM": PEM}).data(said)
    left = shown.replace(b"[redacted:PEM]", b"")
    assert len(left) < len(said) / 10


@pytest.mark.parametrize("length", range(8, 40))
@pytest.mark.parametrize(
    ("before", "after"), [(b"", b""), (b"", b"\n"), (b"1", b"\r\n"), (b"12", b"")]
)
def test_end_of_a_base64_value_is_redacted_completely(
    length: int, before: bytes, after: bytes
) -> None:
    value = bytes(range(250, 250 - length, -1))
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        said = encode(before + value + after)
        shown = Redactor({"API": value}).data(said)
        start, found, end = shown.partition(b"[redacted:API]")
        assert found
        assert len(start) == (len(before) * 8 + 5) // 6
        # The text after the marker reveals nothing of the value: it is the same for another value.
        assert said.endswith(end)
        assert end == encode(before + bytes(length) + after)[len(said) - len(end) :]
        assert len(end) <= len(encode(after)) + 2


def test_short_value_is_not_redacted() -> None:
    redactor = Redactor({"PIN": b"1234567", "EMPTY": b"", "BLANK": b"   \n"})
    assert redactor.data(b"1234567 and nothing") == b"1234567 and nothing"
    assert redactor.text("x") == "x"


def test_texts_and_models_are_redacted() -> None:
    redactor = Redactor({"API": TOKEN, "STATUS": b"success_"})
    result = WorkerResult(
        worker_id=1, branch="b", model="m", status=Status.SUCCESS, worktree_path="/w",
        task=f"use {TOKEN.decode()}", message="\udcff " + TOKEN.decode(),
        files_modified=["a", f"x/{TOKEN.hex()}"],
    )  # fmt: skip
    clean = redactor.model(result)
    assert clean.task == "use [redacted:API]"
    assert clean.message == "\udcff [redacted:API]"
    assert clean.files_modified == ["a", "x/[redacted:API]"]
    assert clean.status is Status.SUCCESS
    assert Redactor().model(result) is result


def test_longer_of_two_overlapping_values_is_redacted() -> None:
    redactor = Redactor({"SHORT": b"password", "LONG": b"password-of-the-database"})
    assert redactor.text("password-of-the-database") == "[redacted:LONG]"
    assert redactor.text("password-of") == "[redacted:SHORT]-of"


def test_two_values_of_one_name_are_redacted() -> None:
    redactor = Redactor({"A": b"value of one", "B": b"another value"}, {"A": b"value of two"})
    assert redactor.text("value of one, value of two") == "[redacted:A], [redacted:A]"
    assert Redactor({"A": b"the same"}, {"B": b"the same"}).text("the same") == "[redacted:A]"


def test_variables_with_secret_names_are_redacted() -> None:
    env = {
        "OPENAI_API_KEY": "sk-1234567890",
        "GITHUB_TOKEN": "ghp_1234567890",
        "PGPASSWORD": "correct-horse",
        "DATABASE_URL": "postgres://user:battery-staple@host/db",
        "OPENAI_BASE_URL": "https://api.example.org/v1",
        "KEYBOARD": "us-international",
        "LANGUAGE": "english-language",
    }
    assert secret_variables(env) == {
        "OPENAI_API_KEY": b"sk-1234567890",
        "GITHUB_TOKEN": b"ghp_1234567890",
        "PGPASSWORD": b"correct-horse",
        "DATABASE_URL": b"battery-staple",
    }


def test_many_values_are_redacted() -> None:
    random.seed(22)
    letters = string.ascii_letters + string.digits
    values = {f"K{n}": "".join(random.choices(letters, k=8 + n)).encode() for n in range(40)}
    redactor = Redactor(values)
    data = b"\n".join(spelt for value in values.values() for spelt in encodings(value).values())
    shown = redactor.data(data)
    assert shown.count(b"[redacted:") == data.count(b"\n") + 1
    for name, value in values.items():
        for known in (redactor, Redactor({name: value})):
            for before in range(8):
                told = b"-" * before + b"[redacted:" + name.encode() + b"]"
                assert stream(known, [b"-" * before + value]) == told
    assert redactor.names_in(data) == frozenset(values)
    assert redactor.names_in(shown) == frozenset()
