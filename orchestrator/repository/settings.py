"""Read the user's git settings as git does, and find files whose required filters did not run.

A clean filter with `filter.NAME.required`, such as one that encrypts, changes a file on its way
into a commit. For a worker's files no filter runs: its commits have them in plain text.
"""

import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from orchestrator.base.errors import GitCommandError
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.git.command import Git
from orchestrator.repository.git.limits import UNTRUSTED
from orchestrator.repository.repository import Repository

_LFS = "lfs"
"""The filter of git-lfs, whose work is done for workers' files too."""
_SHOWN = 5
_WORDS = {"true": True, "false": False}


@cache
def is_true(value: str) -> bool:
    """Return whether git takes a setting's value for true.

    A value that git refuses counts as true, so that no protection is left out because of it.
    """
    if value in _WORDS:
        return _WORDS[value]
    try:
        answer = Git(None, config={"orchestrator.value": value}).text(
            "config", "--type=bool", "--get", "orchestrator.value"
        )
    except GitCommandError:
        return True
    # protection: settings-are-true-in-every-spelling-of-git
    return answer == "true"


def is_partial(configured: Mapping[str, str]) -> bool:
    """Return whether the settings are those of a partial clone, which lacks old objects."""
    return any(
        key.startswith("remote.") and key.endswith(".promisor") and is_true(value)
        for key, value in configured.items()
    ) or bool(configured.get("extensions.partialclone"))


def find_required_filters(configured: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the user's required filters with a program for files on the way in."""
    names = {
        key.removeprefix("filter.").removesuffix(".required")
        for key, value in configured.items()
        if key.startswith("filter.") and key.endswith(".required") and is_true(value)
    }
    return frozenset(
        name
        for name in names - {_LFS}
        if configured.get(f"filter.{name}.clean") or configured.get(f"filter.{name}.process")
    )


def files_without_filter(repository: Repository, *, base: str, tip: str) -> tuple[str, ...]:
    """Return the files under a required filter that commits after `base` up to `tip` change.

    A merge also publishes text that a later commit removed. The attributes of both commits count.
    Deleted files and exact copies are no new text.

    Raises:
        RepositoryError: Git failed, or its time was up.
    """
    filters = find_required_filters(repository.git_config)
    if not filters or base == tip:
        return ()
    changed = ("diff-tree", "-r", "-z", "--name-only", "--find-renames=100%", "--diff-filter=ACMT")
    git = repository.git.within(UNTRUSTED)
    commits = git.run("rev-list", f"{base}..{tip}")
    each = git.run(*changed, "--no-commit-id", "-c", "--stdin", stdin=commits)
    # protection: text-that-later-commit-removed-counts
    paths = git.run(*changed, base, tip) + each
    # protection: attributes-that-worker-removed-count
    # protection: attributes-that-worker-added-count
    found = {path for commit in (base, tip) for path in _under(repository, commit, paths, filters)}
    return tuple(sorted(found))


def _under(
    repository: Repository, commit: str, paths: bytes, filters: frozenset[str]
) -> Iterator[str]:
    own = repository.git_config.get("core.attributesfile")
    config = {} if own is None else {"core.attributesFile": own}
    with tempfile.TemporaryDirectory(prefix="orchestrator-attributes-") as scratch:
        git = Git(
            repository.git_dir, work_tree=repository.top, index=Path(scratch) / "index",
            config=config, limits=UNTRUSTED,
        )  # fmt: skip
        git.run("read-tree", commit)
        said = git.run("check-attr", "-z", "--cached", "--stdin", "filter", stdin=paths)
    fields = said.decode("utf-8", "surrogateescape").split("\0")
    for path, name in zip(fields[::3], fields[2::3], strict=False):
        # protection: files-under-required-filter-are-found
        if name in filters:
            yield path


def some_paths(paths: tuple[str, ...]) -> str:
    """Return the first paths for a message."""
    shown = ", ".join(f"`{one_line(path, limit=100)}`" for path in paths[:_SHOWN])
    return f"{shown} and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else shown
