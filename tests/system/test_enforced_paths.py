"""Tests of `enforce: ro` on a real daemon: refused writes, harvested changes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.repository import git

pytestmark = pytest.mark.docker
FLOW = """
tasks:
  - id: one
    paths: [src/api, docs/new]
    enforce: ro
    setup: ["! touch by-setup && echo made > src/api/by-setup"]
    task: |
      set +e
      for command in "touch docs/x" "rm README" "mv src s2" "touch new-top" "mkdir src/other" \\
        "rm link" "mv src/api src/q" "rmdir docs/new" "chmod 777 docs" "ln docs/x src/api/hard" \\
        "ln -s /etc src/l"
      do
        $command 2> /tmp/why && echo "WRITTEN $command"
      done
      mkdir -p src/api/deep; echo 1 > src/api/deep/file; rm src/api/old.py; echo 2 > docs/new/page
      ln -s /etc src/api/etc; rm src/api/etc
      cd src/api; git mv young.py grown.py; mv lower moved; cd ../..
      evil=$(echo evil | git hash-object -w --stdin)
      git update-index --add --cacheinfo 100644,$evil,evil --cacheinfo 100644,$evil,README
      git commit -qm evil && echo committed
"""
# With capabilities that let an ordinary user start the interpreter in a closed home directory.
ORDINARY = (
    "setpriv", "--reuid=12345", "--regid=12345", "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)  # fmt: skip
SOCKET = Path("/var/run/docker.sock")
FILES = ("src/api/old.py", "src/api/young.py", "src/api/lower/file", "docs/x", "README")
CHANGED = {
    "docs/new/page": "A", "src/api/by-setup": "A", "src/api/deep/file": "A",
    "src/api/old.py": "D", "src/api/grown.py": "A", "src/api/young.py": "D",
    "src/api/lower/file": "D", "src/api/moved/file": "A",
}  # fmt: skip


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Return a directory that every user can access."""
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


# Overlay options cannot contain a comma, so the mode `bind` is used there.
@pytest.mark.variants("overlay")
@pytest.mark.parametrize("place", ["overlay", "overlay of an ordinary user", "with,comma"])
def test_writes_are_possible_only_in_the_paths(open_directory: Path, place: str) -> None:
    repo = open_directory / place / "repo"
    for name in FILES:
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text("old\n")
    (repo / "link").symlink_to("docs")
    (repo / "flow.yaml").write_text(FLOW)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "config", "user.name", "user")
    git(repo, "config", "user.email", "user@example.org")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "first")
    prefix: tuple[str, ...] = ()
    if place.endswith("ordinary user") and os.getuid() == 0:
        prefix = (*ORDINARY, f"--groups={SOCKET.stat().st_gid}")
        for path in (repo.parent, repo, *repo.rglob("*")):
            os.chown(path, 12345, 12345, follow_symlinks=False)
    done = subprocess.run(
        [
            *prefix, sys.executable, "-m", "orchestrator", "spec", "run", "flow.yaml",
            "--agent-cli", "shell", "--network", "none", "--json",
        ],
        cwd=repo, env={**os.environ, "HOME": str(repo.parent)}, capture_output=True, text=True,
        timeout=500, check=False, umask=0o077 if prefix else 0o022,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    (result,) = json.loads(done.stdout)["results"]
    assert result["status"] == "success", result
    log = Path(result["log"])
    # All writes outside the paths were refused, and the hand-made commit adds no file outside.
    assert (log / "stdout.log").read_text() == "committed\n"
    safe = ("-c", f"safe.directory={repo}")
    changed = git(repo, *safe, "diff", "--no-renames", "--name-status", "main", result["branch"])
    assert dict(reversed(line.split("\t")) for line in changed.splitlines()) == CHANGED
    assert sorted(result["files_modified"]) == sorted(CHANGED)
    assert not (log / "overlay").exists()
