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
        ("hooks off", '    "core.hooksPath": os.devnull,\n', ""),
        ("fsmonitor off", '    "core.fsmonitor": "false",\n', ""),
        ("attributes file off", '    "core.attributesFile": os.devnull,\n', ""),
        ("alternate refs command off", '    "core.alternateRefsCommand": "true",\n', ""),
        ("large files are not held in memory", '    "core.bigFileThreshold": "128m",\n', ""),
        ("commit graphs neither believed nor written", '    "core.commitGraph": "false",\n', ""),
        ("no split index", '    "core.splitIndex": "false",\n', "",
         "an index is copied whole in any case: defence in depth"),
        ("no signing program", '    "commit.gpgSign": "false",\n', ""),
        ("signatures say nothing", '    "log.showSignature": "false",\n', ""),
        ("submodules not entered", '    "submodule.recurse": "false",\n', ""),
        ("submodules not looked into", '    "diff.ignoreSubmodules": "all",\n', ""),
        ("no external diff", '    "diff.external": "",\n', ""),
        ("no gc", '    "maintenance.auto": "false",\n', ""),
        ("no protocols", '    "protocol.allow": "never",\n', ""),
        ("no repository found by chance", '    "safe.bareRepository": "explicit",\n', ""),
        ("fetches are checked", '    "transfer.fsckObjects": "true",\n', ""),
        ("no lazy fetch", '    "GIT_NO_LAZY_FETCH": "1",\n', ""),
        ("no replacements", '    "GIT_NO_REPLACE_OBJECTS": "1",\n', ""),
        ("no optional locks", '    "GIT_OPTIONAL_LOCKS": "0",\n', ""),
        ("no pager", '    "GIT_PAGER": "cat",\n', ""),
        ("no prompt", '    "GIT_TERMINAL_PROMPT": "0",\n', ""),
        ("no LFS download", '    "GIT_LFS_SKIP_SMUDGE": "1",\n', ""),
        ("clean environment", "{key: os.environ[key] for key in KEPT if key in os.environ}",
         "dict(os.environ)"),
        ("no command without end", "timeout=timeout,\n", "timeout=None,\n"),
        ("no listing without end", "process.kill)\n            clock.start()\n",
         "process.kill)\n"),
        ("no program of ours without end", "args=(batch, reader))\n        clock.start()\n",
         "args=(batch, reader))\n"),
        ("listings are bounded", "output.read(limit + 1)", "output.read()"),
        ("what is too long is refused", "if len(answer) > limit and not cut:", "if False:"),
        ("what a limited command prints is bounded", "if len(answer) > MOST_OUTPUT:", "if False:"),
        ("what a program of ours prints is bounded",
         "        if len(verdict) > most:", "        if False:"),
        ("errors are kept in part", "words = said.read(_MOST_SAID)", "words = said.read()"),
        ("memory of what reads a worker's objects", 'ulimit -d "$0" && ', ""),
        ("CPU time of what reads a worker's objects", 'ulimit -t "$1" && ', ""),
        ("time of what reads a worker's objects",
         "(self._limits.time if self._limits else TIMEOUT)", "TIMEOUT"),
        ("limits of a program of ours", "limits.around([*program, str(answers), str(to_git)])",
         "[*program, str(answers), str(to_git)]"),
        ("Ctrl-C is not for git", "                start_new_session=True,\n", ""),
        ("Ctrl-C is not for a listing", "env=self._env, start_new_session=True,",
         "env=self._env,"),
    )  # fmt: skip


def comparisons() -> Iterator[Protection]:
    """Return the limits on the list of a worker's changes."""
    yield from patches(
        "git/changes.py", ("tests/git/test_changes.py", GATE),
        ("comparisons run no textconv", '"--no-textconv", ', "",
         "counting lines runs none: defence in depth"),
        ("comparisons run no external diff", '"--no-ext-diff", ', "",
         "counting lines runs none: defence in depth"),
        ("comparisons see submodules", ', "--ignore-submodules=none")', ")"),
        ("number of paths", "and len(files) < MOST_FILES", ""),
        ("bytes of paths", "if room >= 0 and ", "if "),
        ("lines of large files are not counted", '{"core.bigFileThreshold": "4m"}', "{}"),
        ("memory and time of a comparison", "repository.git.within(UNTRUSTED, _LARGE_IS_BINARY)",
         "repository.git"),
        ("paths are listed where lines cannot be counted", "    except RepositoryError as error:",
         "    except ZeroDivisionError as error:"),
    )  # fmt: skip


def searches() -> Iterator[Protection]:
    """Return the limits on the search for secrets in commits."""
    yield from patches(
        "git/secret_scan.py", ("tests/git/test_secret_scan.py",),
        ("places are few", "len(places) <= MOST_PLACES and", ""),
        ("number of objects", "if number >= MAX_OBJECTS:", "if False:"),
        ("bytes and time", "if room < len(piece.data) or time.monotonic() > deadline:",
         "if False:"),
        ("what is not searched is told", "    elif left:", "    elif False:"),
        ("more objects than are searched are told", "    if has_more:", "    if False:"),
        ("values across pieces", "before = data[-overlap:] if overlap else b\"\"",
         "before = b\"\""),
        ("files are read in pieces", "file.read(min(rest, _PIECE))", "file.read(rest)"),
    )  # fmt: skip


def repository() -> Iterator[Protection]:
    """Return the protections of the orchestrator's own use of git."""
    tests = (GATE, "tests/git tests/cleanup", "tests/runs/test_repositories.py",
             "tests/git/test_quarantine.py")  # fmt: skip
    empty = "to this git an empty `process` says the same: defence in depth"
    yield from patches(
        "git/repository.py",
        tests,
        ("a revision is no option", '"--end-of-options", ', "",
         "what git answers to an option is no commit: defence in depth"),
        ("one at a time", "            fcntl.flock(file, fcntl.LOCK_EX)\n", ""),
        ("a branch moves from where it was", "new, old)", "new)"),
        ("a branch is dropped where it was", '{branch}", at)', '{branch}")'),
        ("no branch is taken over", 'f"create refs/heads/', 'f"update refs/heads/'),
        ("clean filters off", '"smudge": "", "clean": "",', '"smudge": "",', empty),
        ("smudge filters off", '"smudge": "", "clean": "",', '"clean": "",', empty),
        ("filter processes off", '"process": "", ', ""),
        ("filters that are off are not required", '"process": "", "required": "false"}',
         '"process": ""}'),
    )  # fmt: skip
    yield from patches(
        "git/disarm.py", ("tests/git/test_disarm.py",),
        *((f"programs of the tree: {name}", f'    (r"{pattern}', '    (r"no-such-key')
          for name, pattern in _PROGRAMS.items()),
        ("programs at a place that is computed",
         'if "/" in command and _COMPUTED.search(command):', "if False:"),
        ("programs that are not there yet", '("/" in word or os', "(os"),
        ("drivers that are off are not required",
         "    risky |= {f\"{driver}.required\" for driver in drivers}\n", ""),
        ("the main worktree stays its own", "    if main is not None:\n", "    if False:\n"),
    )  # fmt: skip
