"""Protections of workers that share files from each other."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import (
    Always,
    Give,
    Instead,
    Never,
    Remove,
    Replace,
    Unwrap,
    Without,
)

HANDOVER = "tests/worker/workspace/test_artifacts.py"
SHARING = "tests/worker/workspace/test_shared_files.py"
BULLETIN = "tests/config/workflow/test_shared_findings.py"
PROMPTS = "tests/config/workflow/test_reduce_prompt.py"
SESSIONS = "tests/worker/workspace/test_session_files.py"
OF_WORKERS = "tests/worker/test_sessions.py"


def sharing() -> Iterator[Protection]:
    """Return the limits on files that a worker hands over or reads from others."""
    yield from marked(
        (SESSIONS,),
        ("size of kept sessions limited", Never()),
        ("entries of session directories limited", Never()),
        ("kept sessions have no secrets", Replace("redactor.data(data)", "data")),
        (
            "only regular files of session are kept",
            Replace(
                "open_regular(name, folder=folder)",
                "os.fdopen(os.open(name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=folder), 'rb')",
            ),
        ),
    )
    yield from marked(
        (OF_WORKERS,),
        ("session is seen by agent alone", Replace("frozenset({AGENT_STEP})", "tasks")),
        ("session is kept by its checked id", Without("not re.fullmatch(files.id, name)")),
        ("another session is not kept",
         Without("said not in (None, name)", at="session-is-kept-by-its-checked-id")),
        ("lost session is not continued again", Without("not _was_lost(worker)")),
        ("new session is told", Instead("'session'")),
        ("message with a secret refused", Never()),
        ("delivered message with secret dropped", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/system/test_sessions.py -k limits",),
        ("session counts against disk limit", Instead("()")),
    )
    yield from marked(
        ("tests/agents/test_sessions.py",),
        ("session is cleaned before it is continued", Always()),
        ("settings are removed from sessions of claude", Instead("True")),
        ("settings are removed from sessions of codex", Never()),
        ("counts are removed from sessions of codex", Instead("True")),
        ("settings are removed from sessions of opencode", Remove()),
        ("system prompt of session is not sent", Replace("'off'", "'on'")),
    )
    yield from marked(
        ("tests/runs/test_feedback.py",),
        ("comments of strangers are left out", Never()),
        ("own comments are no feedback", Without("comment.body.lstrip().startswith(_OWN)")),
        ("feedback has limited size", Never()),
        ("names in feedback do nothing", Unwrap("without_effects")),
        ("logs of jobs are read with limit", Instead("chunk")),
        ("no turn without content", Always()),
        ("feedback is shown before it is sent", Remove()),
    )
    yield from marked(
        ("tests/worker/test_turns.py",),
        ("output of checks is no command", Instead("False")),
        ("quoted text is no command",
         Without("begun_by.quotes", at="output-of-checks-is-no-command")),
        ("worker continues only from its own branch", Never()),
        ("commits of user stay reachable", Never()),
        ("message needs something left of budget", Never()),
        ("uncommitted changes are not the worker's", Never()),
        ("failed checks are sent back at most so often",
         Without("fixes >= worker.config.fix_checks")),
        ("failed checks are sent back within budget",
         Never(), "an attempt for which nothing is left of the budget is not prepared anyway"),
        ("undelivered message is not replaced", Without("awaits_turn(directory, number)")),
        ("waiting message is not replaced", Instead("os.replace(half, queued) or half.touch()")),
    )  # fmt: skip
    yield from marked(
        (HANDOVER,),
        ("findings are not read from links or FIFOs",
         Replace("open_regular(path)", "path.open('rb')")),
        ("size of findings limited", Without("MOST_FINDINGS + _MARGIN")),
        ("long findings are truncated",
         Replace("redactor.data(data)[:MOST_FINDINGS]",
                 "redactor.data(data)[:]",
                 at="findings-are-clean-text")),
        ("truncation does not hide secrets", Replace("4096", "0")),
        ("secrets are redacted from findings", Unwrap("data", at="findings-are-clean-text")),
        ("findings are sanitised", Replace("lines", "str", at="findings-are-clean-text")),
        ("artifacts are not read through a link", Replace("handed.lstat", "handed.stat")),
        ("links and special files are removed from artifacts", Never()),
        ("types of artifacts are read without following links", Without("follow_symlinks")),
        ("artifacts with long paths are removed", Never()),
        ("set-user-ID bits are removed from artifacts",
         Instead("path.chmod(0o7777 & (mode | 0o700))")),
        ("number of listed artifacts limited", Replace("found[:MOST_LISTED]", "found")),
        ("collected artifacts are not replaced", Without("not kept.exists()")),
    )  # fmt: skip
    yield from marked(
        (SHARING,),
        ("shared files read-only", Give("read_only=False")),
        ("inputs read-only", Give("read_only=False")),
        ("workers without a workflow share no names", Remove()),
        ("workers without a workflow see no shared files", Always()),
        ("secrets are redacted from the context", Unwrap("text")),
        ("secrets are redacted from inputs", Unwrap("replace")),
        ("size of diffs limited",
         Give("limit=1 << 40"), "the file is truncated anyway, and no test measures the memory"),
        ("long diffs are truncated", Instead("found")),
        ("size of the context limited", Give("most=1 << 30")),
        ("context is not read from a FIFO", Instead("(top / file).read_bytes().decode('utf-8')")),
    )  # fmt: skip
    yield from marked(
        (SHARING,),
        ("artifacts count against the disk limit", Without("*self.shared")),
    )  # fmt: skip
    yield from marked(
        (SHARING,),
        ("checks see no shared files", Without("shared")),
    )  # fmt: skip
    yield from marked(
        (BULLETIN,),
        ("headings in findings are lowered", Unwrap("sub")),
        ("Markdown that affects other lines is fenced", Always()),
        ("fence is longer than any in the text", Instead("'~' * 3")),
        ("total size of findings limited", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/scheduling/test_dependencies.py",),
        ("results are not inserted into a command at its start",
         Never(), "such tasks are already refused when the workflow is read"),
    )  # fmt: skip
    yield from marked(
        ("tests/config/workflow/test_settings_check.py",),
        ("no results in a command", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/config/workflow/parsing/test_diagnostics.py",),
        ("results in a workflow's commands refused", Never()),
    )  # fmt: skip
    yield from marked(
        (PROMPTS,),
        ("inserted results are not expanded again",
         Replace("task", "_PLACE.sub(lambda match: text if match else '', task)")),
        ("text that looks like a template is not replaced", Always("next(numbers) in places")),
        ("size of inserted results limited", Always()),
        ("summaries are sanitised", Unwrap("lines")),
    )  # fmt: skip
