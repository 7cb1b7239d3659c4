"""Find files that the host would refuse, as git could take their directory for a repository."""

import os


def refused_paths(paths: list[bytes], reserved: list[str]) -> set[bytes]:
    """Return the files that make their directory look like a repository, or have a reserved name.

    Args:
        paths: The files.
        reserved: Names at the top that are reserved for workers' worktrees; `*` at the end of a
            name stands for all names with that prefix.
    """
    names = {os.fsencode(name) for name in reserved}
    prefixes = tuple(name[:-1] for name in names if name.endswith(b"*"))
    disguised = _disguised(paths)
    return {
        path
        for path in paths
        if path.startswith(prefixes)
        or path.partition(b"/")[0] in names
        or (path.rpartition(b"/")[2].lower() == b"head" and path.rpartition(b"/")[0] in disguised)
    }


def _disguised(paths: list[bytes]) -> set[bytes]:
    """Return the directories that git would take for repositories."""
    folders: dict[bytes, set[bytes]] = {}
    for path in paths:
        while path:
            folder, _, name = path.rpartition(b"/")
            folders.setdefault(folder, set()).add(name.lower())
            path = folder
    return {
        folder
        for folder, names in folders.items()
        if b"head" in names and not names.isdisjoint((b"objects", b"refs", b"commondir"))
    }
