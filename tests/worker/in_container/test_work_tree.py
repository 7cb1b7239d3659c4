"""Tests of the cleanup that makes the files of a worker readable for git."""

import os
import stat
from pathlib import Path

from orchestrator.worker.in_container.host_git import Notes
from orchestrator.worker.in_container.work_tree import NESTED, WorkTree


def test_only_the_upper_layer_of_an_overlay_is_searched(tmp_path: Path) -> None:
    tree, upper = tmp_path / "tree", tmp_path / "upper"
    for path in (tree / "new", tree / "old", upper / "new"):
        path.mkdir(parents=True)
        os.mkfifo(path / "pipe")
    (tree / "new" / ".git").mkdir()
    (upper / "new" / ".git").mkdir()
    # A whiteout: the worker deleted a file of the base, so the tree does not have it.
    os.mknod(upper / "gone", stat.S_IFCHR)
    notes = Notes(str(tree))
    WorkTree(str(tree), notes, submodules=()).tidy(str(upper), since=-1)
    assert sorted(notes.texts) == [
        "a special file was removed: new/pipe",
        "files of a nested repository were kept as ordinary files: new/.git",
    ]
    assert sorted(path.name for path in (tree / "new").iterdir()) == [NESTED]
    assert (tree / "old" / "pipe").exists()
