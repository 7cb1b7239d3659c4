"""Templates for the names of workers' worktrees and branches.

A template holds `{n}`, which stands for the number of a worker, or `{id}`, which stands for the id
of its task in a workflow, and for `worker-N` where there is none. Nothing here looks at a disk.
"""

import posixpath
import re

WORKTREE_DIR = ".architect-parallel-{n}"
"""Default of `worktree_dir`."""
BRANCH = "architect/parallel-{n}"
"""Default of `branch`."""
LONGEST_ID = 100
"""Characters that the id of a task may have."""
_FIELD = re.compile(r"\{(n|id)\}")
_LONGEST = 300
_FORBIDDEN_IN_PATHS = re.compile(r"""[\x00-\x20\x7f-\x9f*?\[\]\\,:;"'`$<>|&#!{}]""")
_FORBIDDEN_IN_BRANCHES = re.compile(r"""[\x00-\x20\x7f-\x9f*?\[\]\\~^:;"'`$<>|&#!{}]""")


def render(template: str, *, number: int, task_id: str | None) -> str:
    """Return a name for one worker.

    Args:
        template: The template.
        number: The number of the worker.
        task_id: The id of its task, in a workflow.
    """
    values = {"n": str(number), "id": task_id or f"worker-{number}"}
    return _FIELD.sub(lambda match: values[match[1]], template)


def pattern(template: str) -> str:
    """Return the template with `*` for what differs between workers."""
    return _FIELD.sub("*", template)


def has_number(template: str) -> bool:
    """Check whether names differ with the number of a worker."""
    return "{n}" in template


def leads_outside(template: str) -> bool:
    """Check whether worktrees would lie outside of the repository's top level."""
    return template.startswith(("/", "~/", "../"))


def fixed_part(template: str) -> str:
    """Return the directories that all workers' worktrees are in, as `.worktrees`; may be empty."""
    return posixpath.dirname(_FIELD.split(template, maxsplit=1)[0])


def check_worktree_dir(template: str) -> str:
    """Check a template of worktrees' directories, and return it.

    Raises:
        ValueError: It cannot be used, whatever the repository is.
    """
    if template == WORKTREE_DIR:
        return template
    _check_fields(template)
    _check_characters(template, _FORBIDDEN_IN_PATHS)
    names = re.sub(r"\A(?:/|~/|(?:\.\./)+)", "", template).split("/")
    if any(name in ("", ".", "..") or name.startswith(("-", "~")) for name in names):
        raise ValueError("a path such as `.worktrees/{n}`; `..` may only come first")
    if any(name.lower() == ".git" for name in names):
        raise ValueError("a worktree cannot lie in `.git`")
    if names[0].startswith(".architect-parallel-") and not leads_outside(template):
        raise ValueError(f"`.architect-parallel-` is for the default, `{WORKTREE_DIR}`")
    if names[0].startswith("{") and not leads_outside(template):
        raise ValueError("in the repository, a name begins with a text, as `.worktree-{n}`")
    return template


def check_branch(template: str) -> str:
    """Check a template of branches' names, and return it.

    Raises:
        ValueError: It cannot be used, whatever the repository is.
    """
    if template == BRANCH:
        return template
    _check_fields(template)
    _check_characters(template, _FORBIDDEN_IN_BRANCHES)
    if template.startswith(("refs/", "architect/parallel-", "-")):
        raise ValueError("a branch's name such as `solve/issue-{n}`, without `refs/heads/`")
    return template


def _check_fields(template: str) -> None:
    if not _FIELD.search(template):
        raise ValueError("must hold `{n}` or `{id}`, so that workers differ")
    if len(template) > _LONGEST:
        raise ValueError(f"must have no more than {_LONGEST} characters")


def _check_characters(template: str, forbidden: re.Pattern[str]) -> None:
    found = forbidden.search(_FIELD.sub("", template))
    if found is not None:
        what = "a space" if found[0] == " " else f"`{found[0]}`"
        shown = what if found[0].isprintable() else "a control character"
        raise ValueError(f"must not hold {shown}; `{{n}}` and `{{id}}` are filled in")
