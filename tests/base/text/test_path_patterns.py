"""Tests of path patterns: same matches as `.gitignore`, in bounded time."""

import random
import subprocess
import time
from pathlib import Path

import pytest

from orchestrator.base.text.path_patterns import matching, outside, overlap, parse, problem

PATHS = [
    "a.py", "src/top.py", "src/app/x.py", "src/app/[id]/page.tsx", "docs/src/a.md", "README.md",
    "app/[id]/page.tsx", "app/i/page.tsx", "src.txt", "sub/src", "#x", "a b/c",
]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        (".", PATHS),
        ("./", PATHS),
        ("/", PATHS),
        ("**", PATHS),
        ("./src", ["src/top.py", "src/app/x.py", "src/app/[id]/page.tsx"]),
        ("/src", ["src/top.py", "src/app/x.py", "src/app/[id]/page.tsx"]),
        ("/src/", ["src/top.py", "src/app/x.py", "src/app/[id]/page.tsx"]),
        ("src//app/.", ["src/app/x.py", "src/app/[id]/page.tsx"]),
        ("src", [*PATHS[1:5], "sub/src"]),
        ("src/", ["src/top.py", "src/app/x.py", "src/app/[id]/page.tsx", "docs/src/a.md"]),
        ("src/**/*.py", ["src/top.py", "src/app/x.py"]),
        ("src/*.py", ["src/top.py"]),
        ("src/*", ["src/top.py", "src/app/x.py", "src/app/[id]/page.tsx"]),
        ("src/**", ["src/top.py", "src/app/x.py", "src/app/[id]/page.tsx"]),
        ("*.md", ["docs/src/a.md", "README.md"]),
        ("/*.md", ["README.md"]),
        ("app/[id]", ["app/[id]/page.tsx", "app/i/page.tsx"]),
        (r"app/\[id\]", ["app/[id]/page.tsx"]),
        ("app/[id", []),
        ("#x", ["#x"]),
        ("a b", ["a b/c"]),
        ("../src", []),
    ],
)  # fmt: skip
def test_paths_that_a_pattern_covers(pattern: str, covered: list[str]) -> None:
    assert [path for path in PATHS if parse(pattern).covers(path)] == covered
    assert outside([pattern], PATHS) == [path for path in PATHS if path not in covered]


def test_matches_equal_those_of_git(repo: Path) -> None:
    chance = random.Random(7)
    parts = [
        "a",
        "b",
        "ab",
        "*",
        "a*",
        "*b",
        "?",
        "**",
        "[ab]",
        "[!a]",
        "[^a]",
        "[a-b]b",
        r"\*",
        "[]a]",
        "[!!]",
    ]
    names = ["a", "b", "ab", "ba", "aab", "*", "c", "!", "]"]
    for number in range(100):
        pattern = "/".join(chance.choice(parts) for _ in range(chance.randint(1, 4)))
        pattern = chance.choice(["", "/"]) + pattern + chance.choice(["", "", "/"])
        paths = sorted({
            "/".join(chance.choice(names) for _ in range(chance.randint(1, 5))) for _ in range(40)
        })  # fmt: skip
        (repo / ".git" / "info" / "exclude").write_text(pattern + "\n")
        told = subprocess.run(
            ["git", "check-ignore", "--no-index", "--stdin"],
            cwd=repo, input="\n".join(paths), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert told.stderr == ""
        expected = told.stdout.splitlines()
        found = [path for path in paths if parse(pattern).covers(path)]
        assert found == expected, (number, pattern)


def test_glob_is_relative_to_the_top() -> None:
    assert matching(PATHS, ["*.py", "app/[id]/page.tsx"]) == [
        "a.py", "app/[id]/page.tsx", "app/i/page.tsx",
    ]  # fmt: skip
    assert matching(PATHS, ["src", "src/"]) == []


def test_matching_takes_bounded_time() -> None:
    begun = time.process_time()
    deep = "/".join("a" * 500)
    for pattern in ("/".join(["**", "a"] * 20 + ["b"]), "*a" * 20 + "b", "**/" * 50 + "x"):
        assert not parse(pattern).covers(deep)
        assert not parse(pattern).covers("a" * 4000)
        overlap(f"/{pattern}", "/" + "/".join(["*a*", "**"] * 20 + ["c"]))
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("src", "src/app", True),
        (".", "src", True),
        ("./src", "src", True),
        ("/src/", "./src/a.py", True),
        ("src", "docs", False),
        ("src/a", "src/ab", False),
        ("src/*.py", "src/a*", True),
        ("src/*.py", "src/*.md", False),
        ("*.md", "src", True),
        ("*.md", "*.py", True),
        ("src/**/*.py", "src/app/*.py", True),
        ("src/**/*.py", "docs/**", False),
        ("src/[ab]", "src/[bc]", True),
        ("src/[ab]", "src/c", False),
        ("src/?", "src/ab", False),
        ("src/a?", "src/*b", True),
    ],
)
def test_overlap_of_two_patterns(one: str, other: str, shared: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is shared


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("../src", "leads out"), ("src/../../x", "leads out"), (".git/config", "no files"),
        ("!src", "not supported"), (r"src\app", "separated by `/`"),
    ],
)  # fmt: skip
def test_patterns_that_match_nothing_are_reported(pattern: str, told: str) -> None:
    assert told in (problem(pattern) or "")
    assert problem(r"src/\[id\]") is None
