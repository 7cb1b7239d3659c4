"""Templates for the names of workers' worktrees and branches.

`{n}` is replaced by the number of the worker, and `{id}` by the id of its task in a workflow, or
by `worker-N` without a workflow.
"""

import posixpath
import re

WORKTREE_DIR = ".architect-parallel-{n}"
"""Default of the setting `worktree_dir`."""
BRANCH = "architect/parallel-{n}"
"""Default of the setting `branch`."""
LONGEST_ID = 100
"""Maximum number of characters of a task's id."""
_FIELD = re.compile(r"\{(n|id)\}")
_LONGEST = 300
_FORBIDDEN_IN_PATHS = re.compile(r"""[\x00-\x20\x7f-\x9f*?\[\]\\,:;"'`$<>|&#!{}]""")
_FORBIDDEN_IN_BRANCHES = re.compile(r"""[\x00-\x20\x7f-\x9f*?\[\]\\~^:;"'`$<>|&#!{}]""")


def render(template: str, *, number: int, task_id: str | None) -> str:
    """Return the name for one worker, with the template's fields replaced.

    Args:
        template: The template.
        number: Number of the worker.
        task_id: Id of the worker's task; None without a workflow.
    """
    values = {"n": str(number), "id": task_id or f"worker-{number}"}
    return _FIELD.sub(lambda match: values[match[1]], template)


def pattern(template: str) -> str:
    """Return the template with `*` in place of its fields, as a file name pattern."""
    return _FIELD.sub("*", template)


def has_number(template: str) -> bool:
    """Return whether the template contains the worker's number, `{n}`."""
    return "{n}" in template


def leads_outside(template: str) -> bool:
    """Return whether worktrees named by the template would be outside of the repository."""
    return template.startswith(("/", "~/", "../"))


def literal_directory(template: str) -> str:
    """Return the directories in a template before its first field; may be empty."""
    return posixpath.dirname(_FIELD.split(template, maxsplit=1)[0])


def check_worktree_dir(template: str) -> str:
    """Return the template if it can name worktrees; otherwise raise an error.

    Raises:
        ValueError: The template is invalid in any repository.
    """
    if template == WORKTREE_DIR:
        return template
    _check_fields(template)
    _check_characters(template, _FORBIDDEN_IN_PATHS)
    names = re.sub(r"\A(?:/|~/|(?:\.\./)+)", "", template).split("/")
    if any(name in ("", ".", "..") or name.startswith(("-", "~")) for name in names):
        raise ValueError(
            "the template must be a path such as `.worktrees/{n}`, with `..` only at the start"
        )
    if any(name.lower() == ".git" for name in names):
        raise ValueError("a worktree must not be inside `.git`")
    if names[0].startswith(".architect-parallel-") and not leads_outside(template):
        raise ValueError(f"`.architect-parallel-` is reserved for the default, `{WORKTREE_DIR}`")
    if names[0].startswith("{") and not leads_outside(template):
        raise ValueError(
            "a worktree path in the repository needs a fixed first part, as `.worktree-{n}`"
        )
    return template


def check_branch(template: str) -> str:
    """Return the template if it can name branches; otherwise raise an error.

    Raises:
        ValueError: The template is invalid in any repository.
    """
    if template == BRANCH:
        return template
    _check_fields(template)
    _check_characters(template, _FORBIDDEN_IN_BRANCHES)
    if template.startswith(("refs/", "architect/parallel-", "-")):
        raise ValueError(
            "the template must be a branch name such as `solve/issue-{n}`, without `refs/heads/`"
        )
    return template


def _check_fields(template: str) -> None:
    if not _FIELD.search(template):
        raise ValueError(
            "the template must contain `{n}` or `{id}`, so that every worker gets a different name"
        )
    if len(template) > _LONGEST:
        raise ValueError(f"the template must have no more than {_LONGEST} characters")


def _check_characters(template: str, forbidden: re.Pattern[str]) -> None:
    match = forbidden.search(_FIELD.sub("", template))
    if match is not None:
        char = "a space" if match[0] == " " else f"`{match[0]}`"
        shown = char if match[0].isprintable() else "a control character"
        raise ValueError(
            f"the name template must not contain {shown}; only `{{n}}` and `{{id}}` are replaced"
        )
