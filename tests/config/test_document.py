"""Tests of the parser of configuration files, with malformed and hostile files."""

import time
from itertools import pairwise

import pytest

from orchestrator.config.loading.document import MAX_BYTES, read_document
from orchestrator.config.node import DocumentError


def read(tmp_path, text: str | bytes, name: str = "c.yaml") -> object:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_document(path)


def refusal(tmp_path, text: str | bytes, name: str = "c.yaml") -> str:
    with pytest.raises(DocumentError) as caught:
        read(tmp_path, text, name)
    return str(caught.value).removeprefix(str(tmp_path / name))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-0.5", -0.5), ("1e3", 1000.0), ("true", True), ("~", None), ("null", None),
        ("on", "on"), ("yes", "yes"), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"),
        ("0x10", "0x10"), ("1_000", "1_000"), ("'3'", "3"), ('"a\\u00e9"', "aé"), (".inf", ".inf"),
    ],
)  # fmt: skip
def test_scalars_follow_the_yaml_core_schema(tmp_path, text, value):
    found = read(tmp_path, f"k: {text}").plain()["k"]
    assert (found, type(found)) == (value, type(value))


def test_empty_file_is_null(tmp_path):
    assert read(tmp_path, "# only a comment\n").plain() is None


def test_nodes_have_line_numbers(tmp_path):
    root = read(tmp_path, "\na:\n  b:\n    - 1\n")
    assert (root.value["a"].line, root.value["a"].value["b"].line) == (2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", ":3: the key `a` is defined twice"),
        ("a: &x 1\nb: *x\n", ":2: aliases (`*name`) are not supported"),
        ("a: !!python/object/apply:os.system [id]\n",
         ":1: the tag `tag:yaml.org,2002:python/object/apply:os.system` is not supported"),
        ("a: !mine 3\n", ":1: the tag `!mine` is not supported"),
        ("a: !!binary aGk=\n", ":1: the tag `tag:yaml.org,2002:binary` is not supported"),
        ("? [a]\n: 1\n", ":1: a key must be text"),
        ("a:\n\tb: 1\n", ":2: found character '\\t' that cannot start any token"),
        ("a: [1\n", ":2: expected ',' or ']', but got '<stream end>'"),
        ("[" * 5000, ":1: the value is nested deeper than 20 levels"),
        ("a: 1\n---\nb: 2\n", ":2: the file has several documents (`---`): use a file for each"),
    ],
)  # fmt: skip
def test_invalid_yaml_is_reported_with_its_line(tmp_path, text, message):
    assert refusal(tmp_path, text) == message


def test_tags_on_collections_are_refused(tmp_path):
    assert "is not supported" in refusal(tmp_path, "a: !mine {b: 1}\n")
    assert "is not supported" in refusal(tmp_path, "a: !mine [1]\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', ": the key `a` is defined twice"),
        (
            '{"a": 1,\n}',
            ":2: the file is not JSON: Expecting property name enclosed in double quotes",
        ),
        ("[" * 100_000, ": the value is nested deeper than 20 levels"),
        ("[" * 30 + "]" * 30, ": the value is nested deeper than 20 levels"),
    ],
)
def test_invalid_json_is_reported_with_its_line(tmp_path, text, message):
    assert refusal(tmp_path, text, "c.json") == message


def test_json_may_be_indented_with_tabs(tmp_path):
    assert read(tmp_path, '{\n\t"a": "\\ud83d\\ude00"\n}', "c.json").plain() == {"a": "😀"}


def test_size_encoding_and_file_type_are_checked(tmp_path):
    assert (
        refusal(tmp_path, b"a" * (MAX_BYTES + 1))
        == ": the file cannot be read: the file is larger than 256 KiB"
    )
    assert refusal(tmp_path, b"a: \xff") == ": the file is not UTF-8 at byte 3"
    assert read(tmp_path, b"\xef\xbb\xbfa: 1").plain() == {"a": 1}
    with pytest.raises(DocumentError, match="the file is not a regular file"):
        read_document(tmp_path)


def test_alias_bomb_is_refused_quickly(tmp_path):
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
    )
    before = time.process_time()
    assert "aliases" in refusal(tmp_path, bomb)
    assert time.process_time() - before < 10


class TestAliases:
    """Aliases and merge keys, which only compose files may have."""

    def read(self, tmp_path, text):
        file = tmp_path / "compose.yaml"
        file.write_text(text)
        return read_document(file, aliases=True).plain()

    def test_aliases_and_merge_keys_are_expanded(self, tmp_path):
        text = "x: &x {p: 1, q: 2}\ny: {<<: *x, q: 3}\nz: {<<: [*x, {q: 9, r: 4}], s: *x}\n"
        assert self.read(tmp_path, text) == {
            "x": {"p": 1, "q": 2},
            "y": {"p": 1, "q": 3},
            "z": {"p": 1, "q": 2, "r": 4, "s": {"p": 1, "q": 2}},
        }

    @pytest.mark.parametrize("text", ["a: &a [*a]\n", "a: &a {b: *a}\n", "a: &a {<<: *a}\n"])
    def test_alias_of_itself_is_refused(self, tmp_path, text):
        with pytest.raises(DocumentError, match="the aliases repeat too many values"):
            self.read(tmp_path, text)

    def test_alias_bomb_is_refused_quickly(self, tmp_path):
        lines = [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in pairwise("abcdef")]
        with pytest.raises(DocumentError, match="the aliases repeat too many values"):
            self.read(tmp_path, "\n".join(["a: &a [x]", *lines]))
