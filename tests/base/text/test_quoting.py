"""Tests of texts for forges: nothing in them is a reference, a command or a marker."""

import re

import pytest

from orchestrator.base.text.quoting import code_block_for_forge, effects, title, without_effects

ACTS = {
    "Fixes #1, closes  owner/repo#2": {"closes an issue", "names an issue"},
    "fixes: org/repo#1": {"closes an issue", "names an issue"},
    "resolves https://github.com/o/r/issues/3": {"closes an issue", "links"},
    "implement PROJ-1 #close": {"names an issue"},
    "gh-12 and AB#7 and !3": {"names an issue"},
    "@everyone": {"mentions somebody"},
    "@\x1b[0meveryone": {"mentions somebody"},
    "\uff20team \uff031": {"mentions somebody", "names an issue"},
    "\r/merge": {"gives a command"},
    "a\n\u00a0\t/close": {"gives a command"},
    "bors r+": {"gives a command"},
    "%{all_commits}": {"gives a command"},
    "x [skip ci]": {"skips checks"},
    "x [CI  SKIP]": {"skips checks"},
    "[ci-skip] [no ci]": {"skips checks"},
    "[skip\x1b[1m ci]": {"skips checks"},
    "[skip azurepipelines]": {"skips checks"},
    "***NO_CI***": {"skips checks"},
    "--skip-ci": {"skips checks"},
    "[CF-Pages-Skip]": {"skips checks"},
    "a\n\nskip-checks: true": {"skips checks", "has a trailer"},
    "a\n\nSigned-off-by : A": {"has a trailer"},
    "Change-Id: I123": {"has a trailer"},
    "BREAKING CHANGE: all": {"has a trailer"},
    "www.evil.example": {"links"},
}
QUIET = [
    "add a file",
    "fix: the parser",
    "use a/b and 3/4",
    "a #",
    "mail @ noon",
    "step-by-step",
    "skip",
]
FORGES = re.compile(
    r"@\w|[#!]\w|gh-\d|://|www\.|\[(ci|skip|no)[ -]+(ci|skip)\]|NO_CI|skip-c|%\{"
    r"|^\s*/\w|^(signed-off-by|change-id|skip-checks|co-authored-by)\s*:|bors r|^BREAKING CHANGE:",
    re.IGNORECASE | re.MULTILINE,
)
"""What forges and the programs around them look for; written apart from the code."""


@pytest.mark.parametrize("text", ACTS)
def test_effect_is_named_and_taken_away(text: str) -> None:
    assert set(effects(text)) == ACTS[text]
    for clean in (
        without_effects(text),
        title(text, limit=100),
        code_block_for_forge(text, limit=1000),
    ):
        assert FORGES.search(clean) is None
        assert set(effects(clean)) <= {"closes an issue"} or "\ufffd" in clean
        assert "\r" not in clean


@pytest.mark.parametrize("text", QUIET)
def test_text_without_an_effect_is_unchanged(text: str) -> None:
    assert (effects(text), without_effects(text)) == ((), text)


def test_long_subject_is_cut_before_it_is_cleaned() -> None:
    assert len(title("@a" * 10_000, limit=72)) < 150
    assert FORGES.search(title("@a" * 10_000, limit=72)) is None
