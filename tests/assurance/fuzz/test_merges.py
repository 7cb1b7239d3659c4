"""Tests that the matrix of conflicts agrees with `git merge`."""

import re
import shutil
from pathlib import Path

from orchestrator.repository.commits.merge_tree import merge_pairs, quarantine
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch
from orchestrator.review.landing.conflict_matrix import find_conflicts, path_text
from tests.assurance.fuzz.seeds import Seeds
from tests.assurance.fuzz.trios import Trio, merged_by_git

SIDE = re.compile(rb"~(?:HEAD|[0-9a-f]{40})(?:_[0-9]+)?$")
"""What git appends to a file's name where the other side has a directory."""


def test_merges_equal_those_of_git(seeds: Seeds, tmp_path: Path) -> None:
    """Clean merges have the same tree; others name every path that `git merge` leaves unmerged."""

    def case(seed: int) -> str:
        trio = Trio(tmp_path / f"{seed}", seed)
        repository = Repository(trio.root)
        with quarantine(repository, tmp_path / "quarantine") as git:
            ours = merge_pairs(git, trio.pairs(), timeout=60)
        branches = [Branch(n, "", trio.base, tip, None) for n, tip in enumerate(trio.tips, 1)]
        matrix = find_conflicts(repository, branches, run_id="run", base=trio.base).pairs
        cells = [cell for cell in matrix if cell.a]
        clean = 0
        for pair, merged, cell in zip(trio.pairs(), ours, cells, strict=True):
            assert merged is not None
            tree, unmerged = merged_by_git(trio.root, *pair)
            assert (tree is None) == bool(merged.paths), (pair, merged, unmerged)
            assert tree in (None, merged.tree)
            paths = {SIDE.sub(b"", path) for path in unmerged}
            assert paths <= {*merged.paths}
            assert cell.is_clean == (tree is not None), (pair, cell)
            assert cell.is_clean or {path_text(path) for path in paths} <= {*cell.files}
            clean += tree is not None
        shutil.rmtree(trio.root)
        return f"{clean} of 3 clean"

    seeds.run(case, ordinary=12)
    if seeds.chosen is None:
        assert len(seeds.outcomes) > 2, "the cases are too much alike"
