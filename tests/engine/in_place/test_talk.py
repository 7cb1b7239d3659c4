"""Commands whose connections were cut, of which an engine says nothing."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.files.bundle import bundle
from tests.support.live import eventually

pytestmark = pytest.mark.process
MOST = 16


def test_commands_that_nobody_ends_do_not_fill_the_place(tmp_path: Path) -> None:
    program, root = tmp_path / "porter.py", tmp_path / "state"
    program.write_text(bundle("orchestrator.engine.in_place.porter"))
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
