"""Protections of the user's repository from the files of a worker."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import (
    Always,
    Give,
    Instead,
    Never,
    Remove,
    Replace,
    Text,
    Unwrap,
    Without,
)

REGULAR = "tests/base/files/test_safe_open.py"
IMPORT = "tests/repository/test_quarantine.py tests/repository/test_quarantine_files.py"
TREES = "tests/repository/test_tree_checks.py"
HELPER = "tests/worker/test_harvest.py"
PLAIN = "tests/worker/workspace/test_plain_files.py"
PLAIN_COMMIT = "tests/repository/test_plain_commit.py"
PLAIN_HARVEST = "tests/system/test_plain_harvest.py"
ROOM = "tests/worker/test_harvest_disk_limit.py"
STORE = "tests/worker/in_container"
KEPT = "tests/repository/test_kept_refs.py"
KEPT_IMPORT = "tests/repository/test_kept_refs_import.py"
STATES = "tests/assurance/fuzz/test_git_states.py"
FUZZ = "tests/assurance/fuzz/test_import.py"
INTEGRATION = "tests/repository/test_merge.py tests/repository/test_merge_hostile.py"
FUZZ_HELPER = "tests/assurance/fuzz/test_helper.py"


def harvest() -> Iterator[Protection]:
    """Return the checks of a pack, its commits and its trees."""
    yield from marked(
        (REGULAR, IMPORT),
        ("links in the harvest's output not followed", Without("no_link")),
        ("FIFOs in the harvest's output do not block", Without("os.O_NONBLOCK")),
        ("only regular files of the harvest's output are read", Never()),
    )  # fmt: skip
    yield from marked(
        (IMPORT, TREES, FUZZ),
        ("length of read files limited", Without("limit")),
        ("tip must be an object id", Never()),
        ("packs are checked with --strict", Without("'--strict'")),
        ("size of packs limited", Without("f'--max-input-size={MAX_PACK}'")),
        ("size of unpacked deltas limited", Without("GIT_ALLOC_LIMIT")),
        ("tip must be a commit", Never()),
        ("tip must descend from the base", Never()),
        ("number of new objects limited", Never()),
        ("number of new commits limited", Never()),
        ("size of commit objects limited", Never("size > MAX_MESSAGE")),
        ("total size of new objects limited", Remove()),
        ("refusal of trees counts", Never()),
        ("many trees are checked in a separate process", Without("most")),
        ("size of the checked-out files limited", Replace("check_size", "lambda *_, **__: 0")),
        ("size limit follows the worker's disk limit", Unwrap("min")),
        ("trees of every commit are checked", Instead("roots or roots.add(root.decode('ascii'))")),
        ("quarantine contains only given objects",
         Replace("origin.objects", "repository.objects_dir")),
        ("quarantine is removed", Remove()),
        ("leftover quarantine is removed", Remove()),
        ("import checks objects with --strict",
         Without("'--strict'"), "defence in depth: the pack was already checked in the quarantine"),
        ("notes must be a list", Never()),
        ("notes must be texts", Without("isinstance(note, str)", at="notes-are-short-texts")),
        ("number of notes limited", Replace("notes[:20]", "notes", at="notes-are-short-texts")),
        ("notes are sanitized", Unwrap("one_line", at="notes-are-short-texts")),
        ("deeply nested notes are refused", Instead("ValueError")),
    )  # fmt: skip
    yield from marked(
        (HELPER,),
        ("branch moves only from its base", Give("old=''")),
    )  # fmt: skip
    yield from marked(
        (PLAIN,),
        ("plain: only names that git takes literally", Without("_NAME.fullmatch(n)")),
        ("plain: no disguised git directory", Without("n.lower() not in _OF_GIT_DIRECTORIES")),
        ("plain: number of entries limited", Without("self._entries > MOST_ENTRIES")),
        ("plain: size limited",
         Without("info.st_size > self._room"), "larger files are left to the container anyway"),
        ("plain: hard links refused", Without("info.st_nlink != 1")),
        ("plain: depth limited", Never()),
        ("plain: entries with overlay attributes refused", Never()),
        ("plain: moved entries refused",
         Instead("covers and marks - _HARMLESS - (frozenset() if covers else _NEW)")),
        ("plain: unreadable overlay attributes refused", Never()),
    )  # fmt: skip
    yield from marked(
        (PLAIN_COMMIT,),
        ("plain: ignored files refused",
         Instead("bool(rules) or not rules.succeeds('check-ignore', '-q', '-z', '--stdin', "
                 "'--no-index', stdin=listed)")),
        ("plain: files with attributes refused",
         Instead("not rules and rules.run('check-attr', '-z', '--stdin', '--all', stdin=listed)")),
        ("plain: converting settings refused", Never("is_true(value) is not _CONVERTING[key]")),
        ("plain: directory does not replace a file", Never()),
        ("plain: author's name cannot contain a newline",
         Replace("character.isprintable() and character not in '<>'", "character")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_written_files.py", "tests/runs/test_worktrees_setting.py"),
        ("a written file that no commit has stays", Instead("wanted")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_store_state.py", PLAIN_HARVEST),
        ("plain: store must be unchanged", Never()),
        ("plain: packs are those given", Always("packs <= given")),
        ("plain: HEAD must be unchanged", Replace("('HEAD', head)", "()")),
        ("plain: index must be unchanged",
         Always("_is_same_file(store.git / _INDEX, own if own.exists() else shared)")),
    )  # fmt: skip
    yield from marked(
        (TREES, IMPORT, FUZZ),
        ("added submodules are refused", Never()),
        ("disguised git directories are refused", Never()),
        ("number of files limited", Never()),
        ("number of files per directory limited",
         Never(),
         "the commit is refused for its number of files anyway; this only ends reading sooner"),
        ("total length of paths limited", Never()),
        ("names reserved for worktrees are refused", Never()),
        ("length of paths limited", Never()),
        ("length of names limited", Never()),
        ("length of link targets limited", Give("most=1 << 30")),
        ("empty link targets are refused", Never()),
        ("link targets with NUL are refused", Never()),
        ("unusual permission bits of modes are ignored", Without("_KIND")),
        ("unknown modes count as submodules",
         Instead("kind if kind in (_DIRECTORY, _LINK, _GITLINK) else _FILE")),
        ("depth of trees limited",
         Instead("iter(int, 1)"), "defence in depth: such paths are refused for their length"),
        ("size of a tree limited", Without("size > most")),
        ("total size of trees limited", Never("total is not None and total < 0")),
        ("disguised git directories are found in any case", Unwrap(".lower")),
        ("incomplete answers of git are refused", Instead("self._answers.read(1) is None")),
        ("each tree is read once", Instead("set()")),
    )  # fmt: skip


def kept() -> Iterator[Protection]:
    """Return the checks of a worker's other commits, and of the refs that keep them."""
    yield from marked(
        (KEPT_IMPORT, KEPT),
        ("ref names are sanitised", Unwrap("sub")),
        ("ref name cannot be a prefix of another ref", Replace("taken | folders", "taken")),
        ("ref names differ in more than case", Unwrap(".lower")),
        ("length of ref names limited", Replace("part[:_LONGEST_PART]", "part")),
        ("listed refs must be object ids", Unwrap("fullmatch")),
        ("only packed commits are kept",
         Never(), "defence in depth: unpacked commits are not in the quarantine"),
        ("checked-out size of kept commits limited", Remove()),
        ("ref names contain no secret", Instead("([name for name, _ in rows], ())")),
        ("refused commits are reported", Instead("None if refusals else None")),
        ("last acceptable commit is kept", Never()),
    )  # fmt: skip
    yield from marked(
        (KEPT, STATES),
        ("commits without a ref are kept", Never()),
        ("all stash entries are kept", Replace("entries", "list(entries)[:1]")),
        ("content that is only staged is kept",
         Instead("(lambda *_: 0)(commit_entries(self._git, only, at, note), at)")),
        ("sides of a conflict are kept", Never()),
        ("split indexes are read", Replace("os.listdir(self._store)", "()")),
    )  # fmt: skip
    yield from marked(
        (KEPT, STATES),
        ("written files are read regardless of size and time", Remove()),
        ("ignored files added by force are kept", Remove()),
        ("sparse checkout deletes no files", Remove()),
        ("commits of a branch that HEAD left are kept", Remove()),
        ("incomplete commits contain no git directory", Instead("set()")),
    )  # fmt: skip


def integration() -> Iterator[Protection]:
    """Return the protections of a merge of several workers' commits."""
    yield from marked(
        (INTEGRATION,),
        ("size of merged files limited", Without("GIT_ALLOC_LIMIT", at="environment-of-merges")),
        ("user's repository settings are not used", Replace("git_dir", "repository.git_dir")),
        ("user's files are not read", Give("work_tree=repository.top")),
        ("rename detection limited", Without("'merge.renameLimit'")),
        ("merge has a timeout", Instead("300.0")),
        ("output about conflicts limited", Give("limit=1 << 27")),
        ("unrelated histories are refused", Never()),
        ("merge is checked like a harvest", Replace("check_trees", "lambda *_, **__: 0")),
        ("names that differ only in letter case are refused", Remove()),
        ("merge is checked before the import", Without("'--strict'")),
        ("import holds the repository lock",
         Replace("repository.lock()", "memoryview(b'')"),
         "defence in depth: git itself locks the repository"),
        ("leftover quarantine is removed", Remove(at="leftover-quarantine-of-merge-is-removed")),
        ("quarantine is removed", Remove(at="quarantine-of-merge-is-removed")),
        ("names in messages are sanitised", Unwrap("one_line")),
        ("number of names in messages limited",
         Replace("result.paths[:MOST_FILES]", "result.paths")),
    )  # fmt: skip


def helper() -> Iterator[Protection]:
    """Return the protections of the harvest's own container."""
    image = "defence in depth: a worker cannot write these files"
    yield from marked(
        ("tests/worker/workspace/test_copy_untracked.py",),
        ("copied files are not committed", Remove()),
    )  # fmt: skip
    yield from marked(
        (ROOM,),
        ("git-lfs content counts against the limit", Remove()),
        ("size of git-lfs content is checked before reading",
         Never(), "the size is checked again after reading; this only saves time"),
        ("sparse files count against the limit", Never()),
    )  # fmt: skip
    yield from marked(
        (ROOM,),
        ("written data of a harvest is measured", Always()),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/test_harvest.py -k someone_ended",),
        ("packing that somebody ended is repeated", Never("status.exit_code in _ENDED")),
    )  # fmt: skip
    yield from marked(
        (STORE, HELPER, FUZZ_HELPER,
         "tests/repository/test_kept_refs_attacked.py -k read_in_bounded_time"),
        ("links in the store are not followed", Without("os.O_NOFOLLOW")),
        ("FIFOs in the store do not block", Without("os.O_NONBLOCK")),
        ("refs must be regular files", Never()),
        ("length of read refs limited", Without("limit")),
        ("refs cannot lead out of the store", Without("'..' not in text")),
        ("chains of symbolic refs are limited", Always("depth")),
        ("refs must be object ids", Instead("text")),
        ("special files are removed", Remove()),
        ("nested repositories become ordinary files", Replace("os.rename", "lambda *_: 0")),
        ("permissions of locked files are restored", Remove()),
        ("large files are left out", Remove()),
        ("only the matching path is left out", Text(",literal")),
        ("other files in the object directory are removed", Remove()),
        ("linked object directory is refused", Never()),
        ("unknown object directories are removed", Without("_OBJECT_FOLDER.fullmatch(name)")),
        ("linked object subdirectories are removed", Without("is_directory(folder)")),
        ("other files among objects are removed", Without("_OBJECT_FILE.fullmatch(name)")),
        ("objects must be regular files", Without("stat.S_ISREG(info.st_mode)")),
        ("system's git configuration is not read",
         Without("GIT_CONFIG_NOSYSTEM", at="environment-of-harvest"), image),
        ("user's git configuration is not read",
         Without("GIT_CONFIG_GLOBAL", at="environment-of-harvest"), image),
        ("replacement objects are ignored",
         Without("GIT_NO_REPLACE_OBJECTS", at="environment-of-harvest"),
         "defence in depth: the host's git directory has no replacement objects"),
        ("tip must be a commit", Never(at="tip-in-store-must-be-commit")),
        ("tip must descend from the base", Always(at="tip-in-store-must-descend-from-base")),
        ("history must be complete", Always()),
        ("failing conversions keep no file out", Never()),
        ("invalid name keeps no other file out", Without("'--ignore-errors'")),
        ("unreadable file keeps no other file out", Replace("OSError", "KeyError")),
        ("full disk ends the harvest", Remove()),
        ("length of read ref lists limited", Remove()),
        ("number of notes limited", Unwrap("few_notes", at="number-of-notes-of-harvest-limited")),
    )  # fmt: skip
    yield from marked(
        (HELPER,),
        ("program imports only its own modules",
         Without("'-I'"),
         "defence in depth: the program runs in a read-only image without variables"),
    )  # fmt: skip
