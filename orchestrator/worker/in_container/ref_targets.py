"""Turn the objects that a worker's refs point at into commits, which the host can keep."""

from orchestrator.worker.in_container.commit_graph import LARGEST_COMMIT, CommitGraph
from orchestrator.worker.in_container.host_git import HostGit
from orchestrator.worker.in_container.notes import Notes
from orchestrator.worker.in_container.store_refs import MOST_NAMES, StoreRefs

MOST_REFS = 100
"""Maximum number of refs that are kept; further commits become parents of one additional commit."""
_KINDS = ("heads", "tags", "stash")


class RefTargets:
    """The refs in a worker's git directory, and a commit for each ref's object."""

    def __init__(self, git: HostGit, notes: Notes, graph: CommitGraph, base: str) -> None:
        self._git = git
        self._notes = notes
        self._graph = graph
        self._base = base

    def commits(self, refs: StoreRefs, *, without: set[str]) -> dict[str, str]:
        """Return a commit for each ref, by the ref's name; commits in `without` are left out."""
        named: dict[str, str] = {}
        left_out = 0
        for name, found, kind in self._kinds(refs):
            if len(named) == MOST_REFS:
                # Commits are found without their names; the text of a tag is not.
                left_out += kind != "commit"
                continue
            commit = self._commit_of(name, found, kind)
            if commit is not None and commit not in without:
                named[name] = commit
        if left_out:
            self._notes.warn(
                f"refs to tags, trees or blobs beyond the first {MOST_REFS} refs were left out: "
                f"{left_out}"
            )
        return named

    def _kinds(self, refs: StoreRefs) -> list[tuple[str, str, str]]:
        """Return name, object id and object type of all refs."""
        found = dict(refs.all())
        if len(found) > MOST_NAMES:
            self._notes.warn(f"only {MOST_NAMES} of the worker's {len(found)} refs were read")
        names = sorted(found, key=_rank)[:MOST_NAMES]
        asked = "".join(f"{found[name]}\n" for name in names).encode()
        form = ("cat-file", "--batch-check=%(objecttype)", "--buffer")
        kinds = self._git.run(*form, stdin=asked).stdout.decode().splitlines()
        return [(name, found[name], kind) for name, kind in zip(names, kinds, strict=False)]

    def _commit_of(self, name: str, found: str, kind: str) -> str | None:
        """Return a commit that contains a ref's object; None if the worker was given the object."""
        if found in self._graph.parents:
            return found
        if kind == "tag" and found in self._graph.tags:
            return self._of_tag(found)
        if kind.endswith(" missing"):
            self._notes.warn(f"a ref names an object that is missing or unreadable: {name}")
        if kind not in ("tree", "blob") or not self._graph.created([found]):
            return None
        said = f"architect: object that `{name}` named"
        return self._graph.wrap(self._tree(found, kind), self._base, said)

    def _tree(self, found: str, kind: str) -> str:
        """Return a tree object; for a file (blob), a tree that has it under the name `blob`."""
        if kind == "tree":
            return found
        return self._git.text("mktree", stdin=f"100644 blob {found}\tblob\n".encode())

    def _of_tag(self, tag: str) -> str | None:
        """Create a commit with the text of an annotated tag, on top of the object that it tags."""
        ask = self._git.text_or_empty
        target = ask("rev-parse", "--verify", "--quiet", f"{tag}^{{}}")
        kind = ask("cat-file", "-t", target) if target else ""
        size = ask("cat-file", "-s", tag)
        if kind not in ("commit", "tree", "blob") or not size or int(size) > LARGEST_COMMIT:
            self._notes.warn(f"a tag that is damaged or too large was left out: {tag}")
            return None
        text = self._git.run("cat-file", "tag", tag).stdout
        if kind == "commit":
            return self._graph.wrap(f"{target}^{{tree}}", target, "architect: a tag\n\n", text)
        tree = self._tree(target, kind)
        return self._graph.wrap(tree, self._base, "architect: a tag\n\n", text)


def _rank(name: str) -> tuple[int, str]:
    kind = name.partition("/")[0]
    return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), name)
