"""Choose the commits of a worker whose histories are complete."""

from collections.abc import Iterable

from orchestrator.worker.in_container.commit_graph import CommitGraph
from orchestrator.worker.in_container.host_git import HostGit
from orchestrator.worker.in_container.notes import Notes

MOST_CHECKS = 1000
"""Maximum number of searches for incomplete histories."""


class WholeHistories:
    """Finds commits whose history lacks objects, and keeps at least the files of such commits."""

    def __init__(self, git: HostGit, notes: Notes, graph: CommitGraph, base: str) -> None:
        self._git = git
        self._notes = notes
        self._graph = graph
        self._base = base

    def of(self, named: dict[str, str]) -> dict[str, str]:
        """Return commits by name; in place of a damaged history, a new commit with its files."""
        whole: dict[str, str] = {}
        pending, checks = [list(named.items())], 0
        while pending:
            group = pending.pop()
            checks += 1
            if checks > MOST_CHECKS:
                said = f"too many commits are damaged; further commits left out: {len(group)}"
                self._notes.warn(said)
            elif self._is_complete(commit for _, commit in group):
                whole.update(group)
            elif len(group) > 1:
                half = len(group) // 2
                pending += [group[half:], group[:half]]
            else:
                whole.update(self._files_of(*group[0]))
        return whole

    def _files_of(self, name: str, commit: str) -> dict[str, str]:
        """Return a new commit, by name, with the files of `commit`; empty if files are missing."""
        if not self._is_complete([f"{commit}^{{tree}}"]):
            self._notes.warn(f"a damaged commit could not be kept: `{name}` ({commit})")
            return {}
        said = f"architect: the files of {commit}, whose history is damaged"
        self._notes.warn(f"only the files of a commit with a damaged history are kept: `{name}`")
        return {name: self._graph.wrap(f"{commit}^{{tree}}", self._base, said)}

    def _is_complete(self, names: Iterable[str]) -> bool:
        asked = "".join(f"{name}\n" for name in (*names, f"^{self._base}")).encode()
        form = ("rev-list", "--objects", "--quiet", "--stdin")
        return self._git.run(*form, stdin=asked).returncode == 0
