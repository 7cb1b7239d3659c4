"""Protections that keep git from running programs, fetching, and trusting hostile data."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

GATE = "tests/git/test_repository_config.py"
_PROGRAMS = {
    "hooks": r"core\.hookspath",
    "fsmonitor": r"core\.fsmonitor",
    "filters": r"filter\..*\.(clean|smudge|process)",
    "required filters": r"filter\..*\.required",
    "one external diff": r"diff\.external",
    "textconv": r"diff\..*\.textconv",
    "external diffs": r"diff\..*\.command",
    "merge drivers": r"merge\..*\.driver",
    "editors": r"(core|sequence)\.editor",
    "the pager": r"core\.pager",
    "pagers": r"pager\..*",
    "gpg": r"gpg\.(program|openpgp\.program)",
    "gpgsm": r"gpg\.x509\.program",
    "ssh-keygen": r"gpg\.ssh\.(program|defaultkeycommand)",
    "ssh": r"core\.sshcommand",
    "askpass and others": r"core\.(askpass|gitproxy|alternaterefscommand)",
    "credential helpers": r"credential\.(.*\.)?helper",
    "diff filters": r"interactive\.difffilter",
    "hooks and trailers by configuration": r"(hook|trailer)\..*\.(command|cmd)",
}


def gate() -> Iterator[Protection]:
    """Return the settings, variables and limits of every git command."""
    yield from patches(
        "git/command.py git/defaults.py git/limits.py git/object_reader.py",
        (GATE, "tests/git tests/cleanup", "tests/runs/test_repositories.py"),
        ("hooks disabled", '    "core.hooksPath": os.devnull,\n', ""),
        ("fsmonitor disabled", '    "core.fsmonitor": "false",\n', ""),
        ("attributes file disabled", '    "core.attributesFile": os.devnull,\n', ""),
        ("alternate refs command disabled", '    "core.alternateRefsCommand": "true",\n', ""),
        ("large files are not held in memory", '    "core.bigFileThreshold": "128m",\n', ""),
        ("commit graphs neither read nor written", '    "core.commitGraph": "false",\n', ""),
        ("no split index", '    "core.splitIndex": "false",\n', "",
         "defence in depth: the index is always copied as one file"),
        ("no signing program", '    "commit.gpgSign": "false",\n', ""),
        ("signatures are not shown", '    "log.showSignature": "false",\n', ""),
        ("submodules not entered", '    "submodule.recurse": "false",\n', ""),
        ("submodules not read for status", '    "diff.ignoreSubmodules": "all",\n', ""),
        ("no external diff", '    "diff.external": "",\n', ""),
        ("no automatic garbage collection", '    "maintenance.auto": "false",\n', ""),
        ("transport protocols disabled", '    "protocol.allow": "never",\n', ""),
        ("embedded bare repositories not discovered",
         '    "safe.bareRepository": "explicit",\n', ""),
        ("fetched objects are checked", '    "transfer.fsckObjects": "true",\n', ""),
        ("no lazy fetch", '    "GIT_NO_LAZY_FETCH": "1",\n', ""),
        ("replacement objects ignored", '    "GIT_NO_REPLACE_OBJECTS": "1",\n', ""),
        ("grafts ignored", '    "GIT_GRAFT_FILE": f"{os.devnull}/none",\n', ""),
        ("no optional locks", '    "GIT_OPTIONAL_LOCKS": "0",\n', ""),
        ("no pager", '    "GIT_PAGER": "cat",\n', ""),
        ("no prompt for credentials", '    "GIT_TERMINAL_PROMPT": "0",\n', ""),
        ("no download of LFS content", '    "GIT_LFS_SKIP_SMUDGE": "1",\n', ""),
        ("clean environment", "{key: os.environ[key] for key in KEPT if key in os.environ}",
         "dict(os.environ)"),
        ("commands have a timeout", "timeout=timeout,\n", "timeout=None,\n"),
        ("listings have a timeout", "process.kill)\n            clock.start()\n",
         "process.kill)\n"),
        ("object readers have a timeout", "args=processes)\n    clock.start()\n",
         "args=processes)\n"),
        ("length of listings limited", "output.read(limit + 1)", "output.read()"),
        ("records that are too long are refused",
         "if len(answer) > limit and not cut:", "if False:"),
        ("output of limited commands limited", "if len(answer) > MOST_OUTPUT:", "if False:"),
        ("output of object readers limited",
         "        if len(verdict) > most:", "        if False:"),
        ("stored error output limited", "words = said.read(_MOST_SAID)", "words = said.read()"),
        ("memory limit of processes that read a worker's objects", 'ulimit -d "$0" && ', ""),
        ("CPU limit of processes that read a worker's objects", 'ulimit -t "$1" && ', ""),
        ("timeout of processes that read a worker's objects",
         "(self._limits.time if self._limits else TIMEOUT)", "TIMEOUT"),
        ("resource limits of object readers",
         "limits.around([*program, *map(str, places)])",
         "[*program, *map(str, places)]"),
        ("Ctrl-C does not reach git", "                start_new_session=True,\n", ""),
        ("Ctrl-C does not reach listings", "env=self._env, start_new_session=True,",
         "env=self._env,"),
    )  # fmt: skip


def comparisons() -> Iterator[Protection]:
    """Return the limits on the list of a worker's changes."""
    yield from patches(
        "git/changes.py", ("tests/git/test_changes.py", GATE),
        ("comparisons do not run textconv", '"--no-textconv", ', "",
         "defence in depth: counting lines runs no such program"),
        ("comparisons do not run external diffs", '"--no-ext-diff", ', "",
         "defence in depth: counting lines runs no such program"),
        ("comparisons include submodules", ', "--ignore-submodules=none")', ")"),
        ("number of listed paths limited", "and len(files) < MOST_FILES", ""),
        ("total length of listed paths limited", "if room >= 0 and ", "if "),
        ("lines of large files are not counted", '{"core.bigFileThreshold": "4m"}', "{}"),
        ("memory and time of a comparison limited",
         "repository.git.within(UNTRUSTED, _LARGE_IS_BINARY)",
         "repository.git"),
        ("paths are listed if lines cannot be counted", "    except RepositoryError as error:",
         "    except ZeroDivisionError as error:"),
    )  # fmt: skip


def searches() -> Iterator[Protection]:
    """Return the limits on the search for secrets in commits."""
    yield from patches(
        "git/secret_scan.py", ("tests/git/test_secret_scan.py",),
        ("number of reported places limited", "len(places) <= MOST_PLACES and", ""),
        ("number of searched objects limited", "if number >= MAX_OBJECTS:", "if False:"),
        ("searched bytes and time limited",
         "if room < len(piece.data) or time.monotonic() > deadline:",
         "if False:"),
        ("incomplete search is reported", "    elif left:", "    elif False:"),
        ("unsearched objects are reported", "    if has_more:", "    if False:"),
        ("values across chunk boundaries are found",
         "before = data[-overlap:] if overlap else b\"\"",
         "before = b\"\""),
        ("files are searched in chunks", "file.read(min(rest, _PIECE))", "file.read(rest)"),
    )  # fmt: skip


def repository() -> Iterator[Protection]:
    """Return the protections of the orchestrator's own use of git."""
    tests = (GATE, "tests/git tests/cleanup", "tests/runs/test_repositories.py",
             "tests/git/test_quarantine.py")  # fmt: skip
    empty = "defence in depth: an empty `process` has the same effect in this git"
    yield from patches(
        "git/repository.py git/defaults.py",
        tests,
        ("revisions are not parsed as options", '"--end-of-options", ', "",
         "defence in depth: git's answer to an option is no commit"),
        ("repository lock", "            fcntl.flock(file, fcntl.LOCK_EX)\n", ""),
        ("branch moves only from its expected commit", "new, old)", "new)"),
        ("branch is deleted only at its expected commit", '{branch}", at)', '{branch}")'),
        ("existing branches are not reused", 'f"create refs/heads/', 'f"update refs/heads/'),
        ("clean filters disabled", '"smudge": "", "clean": "",', '"smudge": "",', empty),
        ("smudge filters disabled", '"smudge": "", "clean": "",', '"clean": "",', empty),
        ("filter processes disabled", '"process": "", ', ""),
        ("disabled filters are not required", '"process": "", "required": "false"}',
         '"process": ""}'),
    )  # fmt: skip
    yield from patches(
        "git/required_filters.py", ("tests/git/test_required_filters.py",),
        ("files under a required filter are found",
         "        if name in filters:", "        if False:"),
        ("text that a later commit removed counts", "base, tip) + each", "base, tip)"),
        ("attributes that a worker removed count",
         "for commit in (base, tip) for", "for commit in (tip,) for"),
        ("attributes that a worker added count", "(base, tip) for path in", "(base,) for path in"),
    )  # fmt: skip
    yield from patches(
        "git/settings.py git/disarm.py git/repository.py", ("tests/git/test_settings.py",),
        ("settings are true in every spelling of git", '    return answer == "true"\n',
         '    return value == "yes"\n'),
        ("key without a value is true", 'value if end else "true" for', "value for"),
        ("the user's per-worktree configuration is recognised",
         '_get(config, _EXTENSION, "--type=bool")', "_get(config, _EXTENSION)"),
    )  # fmt: skip
    yield from patches(
        "git/in_progress.py", ("tests/git/test_in_progress.py",),
        ("conflicts without an operation are found", "(paths := _unmerged(repository))",
         "(paths := [])"),
    )  # fmt: skip
    yield from patches(
        "git/disarm.py", ("tests/git/test_disarm.py",),
        *((f"programs of the tree: {name}", f'    (r"{pattern}', '    (r"no-such-key')
          for name, pattern in _PROGRAMS.items()),
        ("programs at a computed path are disabled",
         'if "/" in command and _COMPUTED.search(command):', "if False:"),
        ("programs that do not exist yet are disabled", '("/" in word or os', "(os"),
        ("disabled drivers are not required",
         "    risky |= {f\"{driver}.required\" for driver in drivers}\n", ""),
        ("core.bare and core.worktree apply to the main worktree only",
         "        for key in moved:\n", "        for key in ():\n"),
    )  # fmt: skip
