"""Protections that keep git from running programs, fetching, and trusting hostile data."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import (
    Give,
    Instead,
    Never,
    Remove,
    Replace,
    Text,
    Unwrap,
    Without,
)

GATE = "tests/repository/test_repository_config.py"
PROGRAMS = "tests/repository/test_programs.py"
_PROGRAMS = {
    "hooks": r"core\.hookspath",
    "fsmonitor": r"core\.fsmonitor",
    "filters": r"filter\..*\.(clean|smudge|process)",
    "required filters": r"filter\..*\.required",
    "filters of git-lfs": r"lfs\.extension\..*\.(clean|smudge)",
    "one external diff": r"diff\.external",
    "textconv": r"diff\..*\.textconv",
    "external diffs": r"diff\..*\.command",
    "editors": r"(core|sequence)\.editor",
    "the pager": r"core\.pager",
    "pagers": r"pager\..*",
    "gpg": r"gpg\.(program|openpgp\.program)",
    "gpgsm": r"gpg\.x509\.program",
    "ssh-keygen": r"gpg\.ssh\.(program|defaultkeycommand)",
    "ssh": r"core\.sshcommand",
    "askpass and proxies": r"core\.(askpass|gitproxy)",
    "programs to fetch with": r"remote\..*\.uploadpack",
    "programs to push with": r"remote\..*\.receivepack",
    "programs of remotes": r"remote\..*\.vcs",
    "transports": r"protocol\..*\.allow",
    "updates of submodules": r"submodule\..*\.update",
    "programs of a cleanup": r"gc\.recentobjectshook",
    "mail servers": r"sendemail\.(.*\.)?smtpserver",
    "tunnels": r"imap\.tunnel",
    "tools": r"(man|browser|difftool|mergetool|lfs\.customtransfer)\..*\.path",
    "credential helpers": r"credential\.(.*\.)?helper",
    "diff filters": r"interactive\.difffilter",
    "hooks of the configuration": r"hook\..*\.[a-z]+",
    "trailers": r"trailer\..*\.(command|cmd)",
    "others by their names": (
        r"(?!alias\.|color\.).*(command|cmd|program|hook|helper|driver|editor|askpass)"
    ),
}


def gate() -> Iterator[Protection]:
    """Return the settings, variables and limits of every git command."""
    twice = "defence in depth: a configured program is overridden, too"
    yield from marked(
        (GATE, "tests/repository tests/runs/cleanup", "tests/runs/test_repositories.py"),
        ("hooks disabled", Without("'core.hooksPath'", at="git-settings")),
        ("fsmonitor disabled", Without("'core.fsmonitor'", at="git-settings"), twice),
        ("attributes file disabled", Without("'core.attributesFile'", at="git-settings")),
        ("alternate refs command disabled",
         Without("'core.alternateRefsCommand'", at="git-settings"), twice),
        ("large files are not held in memory",
         Without("'core.bigFileThreshold'", at="git-settings")),
        ("commit graphs neither read nor written",
         Without("'core.commitGraph'", at="git-settings")),
        ("no split index",
         Without("'core.splitIndex'", at="git-settings"),
         "defence in depth: the index is always copied as one file"),
        ("no signing program", Without("'commit.gpgSign'", at="git-settings"), twice),
        ("signatures are not shown", Without("'log.showSignature'", at="git-settings"), twice),
        ("submodules not entered", Without("'submodule.recurse'", at="git-settings")),
        ("submodules not read for status", Without("'diff.ignoreSubmodules'", at="git-settings")),
        ("no external diff", Without("'diff.external'", at="git-settings"), twice),
        ("no automatic garbage collection", Without("'maintenance.auto'", at="git-settings")),
        ("transport protocols disabled", Without("'protocol.allow'", at="git-settings")),
        ("address of a remote is no command", Without("'protocol.ext.allow'", at="git-settings")),
        ("embedded bare repositories not discovered",
         Without("'safe.bareRepository'", at="git-settings")),
        ("fetched objects are checked", Without("'transfer.fsckObjects'", at="git-settings")),
        ("no lazy fetch", Without("GIT_NO_LAZY_FETCH", at="git-environment"), twice),
        ("replacement objects ignored", Without("GIT_NO_REPLACE_OBJECTS", at="git-environment")),
        ("grafts ignored", Without("GIT_GRAFT_FILE", at="git-environment")),
        ("no optional locks", Without("GIT_OPTIONAL_LOCKS", at="git-environment")),
        ("no pager", Without("GIT_PAGER", at="git-environment"), twice),
        ("no prompt for credentials", Without("GIT_TERMINAL_PROMPT", at="git-environment")),
        ("no download of LFS content", Without("GIT_LFS_SKIP_SMUDGE", at="git-environment")),
        ("no trace of commands", Without("GIT_TRACE2", at="git-environment")),
        ("no trace of events", Without("GIT_TRACE2_EVENT", at="git-environment")),
        ("no trace of performance", Without("GIT_TRACE2_PERF", at="git-environment")),
        ("clean environment", Instead("dict(os.environ) | dict(ENVIRONMENT)")),
        ("programs are not looked up in the work tree", Unwrap("absolute_path")),
        ("own git directories have no other settings", Instead("self._env")),
        ("changed settings are listed again", Instead("known is None")),
        ("configured programs are overridden", Remove()),
        ("programs of the tree run only to commit it", Instead("not is_users")),
        ("programs of the tree in variables reach no remote", Instead("asked")),
        ("commands have a timeout", Give("timeout=None")),
        ("listings have a timeout", Remove()),
        ("object readers have a timeout", Remove()),
        ("length of listings limited", Without("limit + 1")),
        ("records that are too long are refused", Never()),
        ("output of limited commands limited", Never()),
        ("output of object readers limited", Never()),
        ("stored error output limited", Without("_MOST_SAID")),
        ("memory limit of processes that read a worker's objects", Text('ulimit -d "$0" && ')),
        ("CPU limit of processes that read a worker's objects", Text('ulimit -t "$1" && ')),
        ("timeout of processes that read a worker's objects", Instead("timeout or TIMEOUT")),
        ("resource limits of object readers", Unwrap("around")),
        ("Ctrl-C does not reach git", Without("start_new_session")),
        ("Ctrl-C does not reach listings", Without("start_new_session")),
    )  # fmt: skip


def comparisons() -> Iterator[Protection]:
    """Return the limits on the list of a worker's changes."""
    yield from marked(
        ("tests/repository/test_changes.py", GATE),
        ("comparisons do not run textconv",
         Without("'--no-textconv'", at="options-of-comparisons"),
         "defence in depth: counting lines runs no such program"),
        ("comparisons do not run external diffs",
         Without("'--no-ext-diff'", at="options-of-comparisons"),
         "defence in depth: counting lines runs no such program"),
        ("comparisons include submodules",
         Without("'--ignore-submodules=none'", at="options-of-comparisons")),
        ("number of listed paths limited", Without("len(files) < MOST_FILES")),
        ("total length of listed paths limited", Without("room >= 0")),
        ("lines of large files are not counted", Without("'core.bigFileThreshold'")),
        ("memory and time of a comparison limited", Unwrap(".within")),
        ("paths are listed if lines cannot be counted", Instead("ZeroDivisionError")),
    )  # fmt: skip


def searches() -> Iterator[Protection]:
    """Return the limits on the search for secrets in commits."""
    yield from marked(
        ("tests/repository/test_secret_scan.py",),
        ("number of reported places limited", Without("len(places) <= MOST_PLACES")),
        ("number of searched objects limited", Never()),
        ("searched bytes and time limited", Never()),
        ("incomplete search is reported", Never()),
        ("unsearched objects are reported", Never()),
        ("values across chunk boundaries are found", Instead("b''")),
        ("files are searched in chunks", Replace("min(rest, _PIECE)", "rest")),
    )  # fmt: skip


def repository() -> Iterator[Protection]:
    """Return the protections of the orchestrator's own use of git."""
    tests = (GATE, "tests/repository tests/runs/cleanup", "tests/runs/test_repositories.py",
             "tests/repository/test_quarantine.py")  # fmt: skip
    empty = "defence in depth: an empty `process` has the same effect in this git"
    yield from marked(
        tests,
        ("revisions are not parsed as options",
         Without("'--end-of-options'"), "defence in depth: git's answer to an option is no commit"),
        ("repository lock", Remove()),
        ("branch moves only from its expected commit", Without("old")),
        ("branch is deleted only at its expected commit", Without("at")),
        ("existing branches are not reused", Text("create refs", "update refs")),
        ("clean filters disabled", Text("{name}.clean= ", at="filters-disabled"), empty),
        ("smudge filters disabled", Text("{name}.smudge= ", at="filters-disabled"), empty),
        ("filter processes disabled", Text("{name}.process= ", at="filters-disabled")),
        ("disabled filters are not required",
         Text(" {name}.required=false", at="filters-disabled")),
    )  # fmt: skip
    yield from marked(
        ("tests/repository/test_required_filters.py",),
        ("files under a required filter are found", Never()),
        ("text that a later commit removed counts", Without("each")),
        ("attributes that a worker removed count", Without("base")),
        ("attributes that a worker added count", Without("tip")),
    )  # fmt: skip
    yield from marked(
        ("tests/repository/test_settings.py",),
        ("settings are true in every spelling of git", Instead("value == 'yes'")),
        ("key without a value is true", Replace("value if end else 'true'", "value")),
        ("the user's per-worktree configuration is recognised", Without("'--type=bool'")),
    )  # fmt: skip
    yield from marked(
        ("tests/repository/test_in_progress.py",),
        ("conflicts without an operation are found", Instead("[]")),
    )  # fmt: skip
    yield from marked(
        ("tests/repository/test_disarm.py", PROGRAMS),
        ("programs at a computed path are disabled", Never()),
        ("programs that do not exist yet are disabled", Without("'/' in word")),
        ("hooks without a path are disabled in worktrees", Without("not is_outside")),
        ("core.bare and core.worktree apply to the main worktree only", Never()),
    )  # fmt: skip
    yield from marked(
        (PROGRAMS,),
        *((f"programs of the tree: {name}", Text(pattern, "no-such-key"))
          for name, pattern in _PROGRAMS.items()),
        at="programs-of-tree",
    )  # fmt: skip
