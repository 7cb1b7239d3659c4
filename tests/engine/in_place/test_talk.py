"""Commands whose connections were cut, of which an engine says nothing."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.files.bundle import bundle
from orchestrator.engine.places.in_place import commands, incoming, records
from orchestrator.engine.places.in_place.archive import END
from orchestrator.engine.places.part_files import archive_of
from tests.support.live import eventually

pytestmark = pytest.mark.process
MOST = 16


def test_commands_that_nobody_ends_do_not_fill_the_place(tmp_path: Path) -> None:
    program, root = tmp_path / "porter.py", tmp_path / "state"
    program.write_text(bundle("orchestrator.engine.places.in_place.porter"))
    root.mkdir()
    with ExitStack() as stack:

        def start(where: Path) -> "subprocess.Popen[bytes]":
            command = [sys.executable, "-I", "-S", str(program), str(where), "talk"]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.callback(process.communicate)
            stack.callback(process.kill)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(["journal", "0"]).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == {"entries": []}
            return process

        other = start(tmp_path)
        made = [start(root) for _ in range(MOST + 3)]
        eventually(lambda: sum(process.poll() is not None for process in made) == 3)
        assert [process.poll() is None for process in made] == [False] * 3 + [True] * MOST
        assert other.poll() is None


def place(root: Path) -> tuple[str, ...]:
    """Create files for every command, and return the last arguments of `unpack`."""
    source, files = root / "source", root / "part" / "files"
    for folder in (source / "d", files, root / "memory" / "new", root / "output", root / "agent"):
        folder.mkdir(parents=True)
    for path in (source / "d" / "f", source / "g", root / "memory" / "new" / "secret"):
        path.write_text("x" * 1000)
    described = {
        "parts": {"part": str(files)},
        "memory": {"memory": str(root / "memory")},
        "channels": str(root),
    }
    (root / "spec.json").write_text(json.dumps(described))
    data = b"".join([*archive_of(source, "files"), END])
    incoming.append(str(root), "part", 0, data)
    return str(len(data)), hashlib.sha256(data).hexdigest(), "known"


def sizes(root: Path) -> dict[str, int]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.stat().st_size for path in files}


@pytest.mark.parametrize(
    ("words", "inside"),
    [
        (("append", "part", "0", "1", ""), (incoming, "_archive")),
        (("unpack", "part"), (incoming, "_replace")),
        (("pack", "part", "99999", "all"), (records, "pack")),
        (("settle", "memory", "new"), (shutil, "rmtree")),
        (("shell", "agent", "1", ""), (os, "fchmod")),
    ],
    ids=("append", "unpack", "pack", "settle", "shell"),
)
def test_command_that_is_repeated_while_it_still_works_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], inside: tuple[Any, str]
) -> None:
    monkeypatch.setattr(commands, "read_data", lambda *_: b"y" * 100)
    archives = [place(tmp_path / name) for name in ("one", "two")]
    once, twice = [(*words, *last) if words[0] == "unpack" else words for last in archives]
    assert commands.perform(str(tmp_path / "one"), *once) == 0
    begun, at_work, most = threading.Event(), 0, 0
    real = getattr(*inside)

    def slow(*given: Any, **rest: Any) -> Any:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        begun.set()
        time.sleep(0.3)
        try:
            return real(*given, **rest)
        finally:
            at_work -= 1

    monkeypatch.setattr(*inside, slow)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(commands.perform, str(tmp_path / "two"), *twice)
        assert begun.wait(60)
        second = pool.submit(commands.perform, str(tmp_path / "two"), *twice)
    assert (first.result(), second.result(), most) == (0, 0, 1)
    assert sizes(tmp_path / "two") == sizes(tmp_path / "one")
