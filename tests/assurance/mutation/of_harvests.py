"""Protections of the user's repository from the files of a worker."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

REGULAR = "tests/files/test_safe_open.py"
IMPORT = "tests/git/test_quarantine.py tests/git/test_quarantine_files.py"
TREES = "tests/git/test_tree_checks.py"
HELPER = "tests/worker/test_harvest.py"
PLAIN = "tests/workspace/test_plain_files.py"
PLAIN_COMMIT = "tests/git/test_plain_commit.py"
PLAIN_HARVEST = "tests/system/test_plain_harvest.py"
ROOM = "tests/worker/test_harvest_disk_limit.py"
STORE = "tests/worker/in_container"
KEPT = "tests/git/test_kept_refs.py"
KEPT_IMPORT = "tests/git/test_kept_refs_import.py"
STATES = "tests/assurance/fuzz/test_git_states.py"
FUZZ = "tests/assurance/fuzz/test_import.py"
INTEGRATION = "tests/git/test_merge.py tests/git/test_merge_hostile.py"
FUZZ_HELPER = "tests/assurance/fuzz/test_helper.py"
INSIDE = "worker/in_container"
_MODULES = ("pack_work", "host_git", "safe_files", "store_refs", "work_tree", "commit_files")


def harvest() -> Iterator[Protection]:
    """Return the checks of a pack, its commits and its trees."""
    yield from patches(
        "files/safe_open.py", (REGULAR, IMPORT),
        ("links in the harvest's output not followed", "os.O_RDONLY | no_link | os.O_NONBLOCK",
         "os.O_RDONLY | os.O_NONBLOCK"),
        ("FIFOs in the harvest's output do not block", "os.O_RDONLY | no_link | os.O_NONBLOCK",
         "os.O_RDONLY | no_link"),
        ("only regular files of the harvest's output are read",
         "elif not stat.S_ISREG(mode):", "if False:"),
    )  # fmt: skip
    yield from patches(
        "git/quarantine.py git/packed_work.py git/new_history.py", (IMPORT, TREES, FUZZ),
        ("length of read files limited", "file.read(limit)", "file.read()"),
        ("tip must be an object id", "if not _OBJECT_ID.fullmatch(tip):", "if False:"),
        ("packs are checked with --strict",
         'quarantine, origin, "--strict")', "quarantine, origin)"),
        ("size of packs limited", "f\"--max-input-size={MAX_PACK}\",", ""),
        ("size of unpacked deltas limited", '{"GIT_ALLOC_LIMIT": "256m"}', "{}"),
        ("tip must be a commit", 'if kind != ["commit", tip]:', "if False:"),
        ("tip must descend from the base",
         "if origin.on_top and not history.follows_base:", "if False:"),
        ("number of new objects limited", "if number >= MAX_OBJECTS:", "if False:"),
        ("number of new commits limited", "if count > most:", "if False:"),
        ("size of commit objects limited", "and size > MAX_MESSAGE:", "and False:"),
        ("total size of new objects limited",
         "            _check_total(total, MAX_CHECKOUT)\n", ""),
        ("refusal of trees counts", "if \"refused\" in verdict:", "if False:"),
        ("many trees are checked in a separate process",
         "tree_checks.Objects(*places, most=_READ_HERE)", "tree_checks.Objects(*places)"),
        ("size of the checked-out files limited",
         "    check_size(git, base=", "    (lambda *_, **__: 0)(git, base="),
        ("size limit follows the worker's disk limit", "room = min(origin.room, MAX_CHECKOUT)",
         "room = MAX_CHECKOUT"),
        ("trees of every commit are checked",
         "roots.add(root.decode", "roots or roots.add(root.decode"),
        ("quarantine contains only given objects",
         'f"{origin.objects}\\n"', 'f"{repository.objects_dir}\\n"'),
        ("quarantine is removed", "finally:\n        shutil.rmtree(quarantine, ignore_errors=True)",
         "finally:\n        pass"),
        ("leftover quarantine is removed",
         "    shutil.rmtree(quarantine, ignore_errors=True)\n    try:",
         "    try:"),
        ("import checks objects with --strict", '"--strict", stdin=file', "stdin=file",
         "defence in depth: the pack was already checked in the quarantine"),
        ("notes must be a list", "if not isinstance(notes, list):", "if False:"),
        ("notes must be texts", "if isinstance(note, str))", ")"),
        ("number of notes limited", "for note in notes[:20]", "for note in notes"),
        ("notes are sanitized", "one_line(note) for note", "note for note"),
        ("deeply nested notes are refused",
         "except (ValueError, RecursionError):", "except ValueError:"),
    )  # fmt: skip
    yield from patches(
        "worker/harvest.py", (HELPER,),
        ("branch moves only from its base", "old=request.workspace.start)", 'old="")'),
    )  # fmt: skip
    yield from patches(
        "workspace/plain_files.py", (PLAIN,),
        ("plain: only names that git takes literally", "_NAME.fullmatch(n) and", ""),
        ("plain: no disguised git directory", "and n.lower() not in _OF_GIT_DIRECTORIES", ""),
        ("plain: number of entries limited", "self._entries > MOST_ENTRIES or", ""),
        ("plain: size limited", " or info.st_size > self._room:", ":",
         "larger files are left to the container anyway"),
        ("plain: hard links refused", "info.st_nlink != 1 or ", ""),
        ("plain: depth limited", 'if inside.count("/") >= _DEEPEST:', "if False:"),
        ("plain: entries with overlay attributes refused",
         "if marks - _HARMLESS - (frozenset() if covers else _NEW):",
         "if False:"),
        ("plain: moved entries refused", "if marks - _HARMLESS - (frozenset() if covers else",
         "if covers and marks - _HARMLESS - (frozenset() if covers else"),
        ("plain: unreadable overlay attributes refused", "if os.getuid() != 0:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "git/plain_commit.py", (PLAIN_COMMIT,),
        ("plain: ignored files refused", 'return not rules.succeeds("check-ignore"',
         'return bool(rules) or not rules.succeeds("check-ignore"'),
        ("plain: files with attributes refused", 'if rules.run("check-attr"',
         'if not rules and rules.run("check-attr"'),
        ("plain: converting settings refused", "if any(is_true(value) is not _CONVERTING[key]",
         "if any(False"),
        ("plain: directory does not replace a file",
         'if not all(line.startswith(("040000 tree ", "missing ")) for line in folders):',
         "if False:"),
        ("plain: author's name cannot contain a newline",
         'character.isprintable() and character not in "<>"',
         "character"),
    )  # fmt: skip
    yield from patches(
        "workspace/written_files.py workspace/mounts.py",
        ("tests/workspace/test_written_files.py", "tests/runs/test_worktrees_setting.py"),
        ("a written file that no commit has stays",
         "if _object_id(name, folder, len(wanted)) == wanted:", "if wanted:"),
    )  # fmt: skip
    yield from patches(
        "worker/plain_harvest.py workspace/store_state.py",
        ("tests/workspace/test_store_state.py", PLAIN_HARVEST),
        ("plain: store must be unchanged",
         'if not is_store_as_created(workspace.store, workspace.worktree.git_dir / "index"):',
         "if False:"),
        ("plain: HEAD must be unchanged", 'for name in ("HEAD", head))', "for name in ())"),
        ("plain: index must be unchanged",
         "_is_same_file(store.git / _INDEX, own if own.exists() else shared)", "True"),
    )  # fmt: skip
    yield from patches(
        "git/tree_checks.py", (TREES, IMPORT, FUZZ),
        ("added submodules are refused", "in sorted(forest.gitlinks - gitlinks):", "in ():"),
        ("disguised git directories are refused", "if forest.disguised - allowed:", "if False:"),
        ("number of files limited", "if entries > bounds.entries:", "if False:"),
        ("number of files per directory limited", "if count > most:", "if False:",
         "the commit is refused for its number of files anyway; this only ends reading sooner"),
        ("total length of paths limited", "if names > bounds.names:", "if False:"),
        ("names reserved for worktrees are refused",
         "in sorted(forest.prefixed.get(root, set()) - forest.prefixed.get(base, set())):",
         "in ():"),
        ("length of paths limited", "if longest > room:", "if False:"),
        ("length of names limited", "if forest.longest_name > longest_name:", "if False:"),
        ("length of link targets limited",
         "most=_PATH_MAX, total=None", "most=1 << 30, total=None"),
        ("empty link targets are refused", "if not target:", "if False:"),
        ("link targets with NUL are refused", 'if b"\\0" in target:', "if False:"),
        ("unusual permission bits of modes are ignored", "int(mode, 8) & _KIND", "int(mode, 8)"),
        ("unknown modes count as submodules",
         "kind if kind in (_DIRECTORY, _LINK, _FILE) else _GITLINK",
         "kind if kind in (_DIRECTORY, _LINK, _GITLINK) else _FILE"),
        ("depth of trees limited", "for _ in range(MAX_DEPTH):", "while True:",
         "defence in depth: such paths are refused for their length"),
        ("size of a tree limited", "if size > most or ", "if "),
        ("total size of trees limited", "(total is not None and total < 0)", "False"),
        ("disguised git directories are found in any case",
         "name.lower() in _TELLING:", "name in _TELLING:"),
        ("incomplete answers of git are refused",
         'if len(content) != size or self._answers.read(1) != b"\\n":',
         "if self._answers.read(1) is None:"),
        ("each tree is read once", "wanted -= self._trees.keys()", "wanted = set(wanted)"),
    )  # fmt: skip


def kept() -> Iterator[Protection]:
    """Return the checks of a worker's other commits, and of the refs that keep them."""
    yield from patches(
        "git/kept_refs.py", (KEPT_IMPORT, KEPT),
        ("ref names are sanitised", '_UNSAFE.sub("_", part[:_LONGEST_PART]) or "_"',
         'part[:_LONGEST_PART] or "_"'),
        ("ref name cannot be a prefix of another ref", "or name in folders or not", "or not"),
        ("ref names differ in more than case", "_is_taken(name.lower(), taken",
         "_is_taken(name, taken"),
        ("length of ref names limited", "part[:_LONGEST_PART]", "part"),
        ("listed refs must be object ids",
         "if not all(_OBJECT_ID.fullmatch(name) for name in (bundle, *(",
         "if not all(name for name in (bundle, *("),
        ("only packed commits are kept", "if not set(parents).issuperset(wanted.values()):",
         "if False:",
         "defence in depth: unpacked commits are not in the quarantine"),
        ("checked-out size of kept commits limited",
         "check_size(git, base=origin.base, tip=commit, room=origin.room)", "pass"),
        ("ref names contain no secret", "_without_secrets([name for name, _ in rows], redactor)",
         "[name for name, _ in rows], ()"),
        ("refused commits are reported",
         "refused = \"commits that are not on the worker's branch were refused\" if",
         "refused = None if"),
        ("last acceptable commit is kept", "if self.let_in(chain[middle]) is None:", "if False:"),
    )  # fmt: skip
    yield from patches(
        f"{INSIDE}/kept_commits.py {INSIDE}/store_refs.py", (KEPT, STATES),
        ("commits without a ref are kept", "for commit in sorted(heads):", "for commit in ():"),
        ("all stash entries are kept", "for number, entry in enumerate(entries):",
         "for number, entry in enumerate(list(entries)[:1]):"),
        ("content that is only staged is kept", 'self.keep_commit("index", ',
         '(lambda *_: 0)('),
        ("sides of a conflict are kept", "        if sides:\n", "        if False:\n"),
        ("split indexes are read", 'found = [name for name in os.listdir(self._store) if',
         "found = [name for name in () if"),
    )  # fmt: skip
    yield from patches(
        f"{INSIDE}/commit_files.py {INSIDE}/pack_work.py", (KEPT, STATES),
        ("written files are read regardless of size and time",
         "        forget_times(self._git, self._tree)\n", ""),
        ("ignored files added by force are kept", "        self._take_staged(index, parent)\n", ""),
        ("sparse checkout deletes no files", "        self._restore_sparse(index, parent)\n", ""),
        ("commits of a branch that HEAD left are kept",
         "            tip = str(own)\n", "            pass\n"),
        ("incomplete commits contain no git directory",
         "refused = find_refused(paths, worktree_names()) - known",
         "refused = set()"),
    )  # fmt: skip


def integration() -> Iterator[Protection]:
    """Return the protections of a merge of several workers' commits."""
    yield from patches(
        "git/task_merge.py git/merge_tree.py git/sealed_commits.py", (INTEGRATION,),
        ("user's merge drivers are not used", '    "GIT_CONFIG_GLOBAL": devnull,\n', ""),
        ("system's merge drivers are not used", '    "GIT_CONFIG_NOSYSTEM": "1",\n', "",
         "defence in depth: only root can write to these files"),
        ("system's attributes are not used", '    "GIT_ATTR_NOSYSTEM": "1",\n', "",
         "defence in depth: only root can write to these files"),
        ("size of merged files limited", '    "GIT_ALLOC_LIMIT": "256m",\n', ""),
        ("user's repository settings are not used", "return Git(git_dir, work_tree=files",
         "return Git(repository.git_dir, work_tree=files"),
        ("user's files are not read", "return Git(git_dir, work_tree=files",
         "return Git(git_dir, work_tree=repository.top"),
        ("rename detection limited", '"merge.renameLimit": "1000", ', ""),
        ("merge has a timeout",
         "timeout = max(0.1, self._deadline - time.monotonic())", "timeout = 300.0"),
        ("output about conflicts limited", "limit=MOST_SAID, answers", "limit=1 << 27, answers"),
        ("unrelated histories are refused",
         'if not repository.git.succeeds("merge-base", "--is-ancestor", base, tip.commit):',
         "if False:"),
        ("merge is checked like a harvest", "            check_trees(self._git, ",
         "            (lambda *_, **__: 0)(self._git, "),
        ("names that differ only in letter case are refused",
         "            self._check_names(commit, tips)\n", ""),
        ("merge is checked before the import", '    git.run("index-pack", "--strict", ',
         '    git.run("index-pack", '),
        ("import holds the repository lock", "    with repository.lock():\n        accept_pack",
         "    if True:\n        accept_pack",
         "defence in depth: git itself locks the repository"),
        ("leftover quarantine is removed",
         "    shutil.rmtree(scratch, ignore_errors=True)\n    try:",
         "    try:"),
        ("quarantine is removed",
         "    finally:\n        shutil.rmtree(scratch, ignore_errors=True)",
         "    finally:\n        pass"),
        ("names in messages are sanitised",
         "[one_line(fsdecode(path)) for path in paths[:MOST_FILES]]",
         "[fsdecode(path) for path in paths[:MOST_FILES]]"),
        ("number of names in messages limited",
         "for path in paths[:MOST_FILES]]", "for path in paths]"),
    )  # fmt: skip


def helper() -> Iterator[Protection]:
    """Return the protections of the harvest's own container."""
    image = "defence in depth: a worker cannot write these files"
    yield from patches(
        f"{INSIDE}/commit_files.py", ("tests/workspace/test_copy_untracked.py",),
        ("copied files are not committed", "        self._leave_copies(parent)\n", ""),
    )  # fmt: skip
    yield from patches(
        f"{INSIDE}/commit_files.py {INSIDE}/work_tree.py", (ROOM,),
        ("git-lfs content counts against the limit", "self.room -= info.st_size", "pass"),
        ("size of git-lfs content is checked before reading",
         "if info.st_size > self.room and info.st_size not in self._given.values():", "if False:",
         "the size is checked again after reading; this only saves time"),
        ("sparse files count against the limit", "if self._holes < 0:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "worker/pack.py", (ROOM,),
        ("written data of a harvest is measured", "if written <= room:", "if True:"),
    )  # fmt: skip
    yield from patches(
        "worker/pack.py", ("tests/worker/test_harvest.py -k someone_ended",),
        ("packing that somebody ended is repeated",
         "if status.exit_code in _ENDED and", "if False and"),
    )  # fmt: skip
    yield from patches(
        " ".join(f"{INSIDE}/{module}.py" for module in _MODULES), (STORE, HELPER, FUZZ_HELPER,
         "tests/git/test_kept_refs_attacked.py -k read_in_bounded_time"),
        ("links in the store are not followed", "os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.",
         "os.open(path, os.O_RDONLY | os."),
        ("FIFOs in the store do not block", "(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)",
         "(path, os.O_RDONLY | os.O_NOFOLLOW)"),
        ("refs must be regular files",
         "if not stat.S_ISREG(os.fstat(descriptor).st_mode):", "if False:"),
        ("length of read refs limited", "file.read(limit)", "file.read()"),
        ("refs cannot lead out of the store", '".." not in text and depth', "depth"),
        ("chains of symbolic refs are limited", "and depth:", "and True:"),
        ("refs must be object ids",
         "return text if _OBJECT_ID.fullmatch(text) else None", "return text"),
        ("special files are removed", "            os.unlink(path)\n", "            pass\n"),
        ("nested repositories become ordinary files",
         "os.rename(path, free_name(os.path.join(folder, NESTED",
         "(lambda *_: 0)(path, free_name(os.path.join(folder, NESTED"),
        ("permissions of locked files are restored",
         "        os.chmod(path, mode | bits)", "        pass"),
        ("large files are left out",
         "            self.left_out[path] = _TOO_LARGE\n            return\n",
         "            return\n"),
        ("only the matching path is left out", ":(exclude,top,literal){path}",
         ":(exclude,top){path}"),
        ("other files in the object directory are removed",
         "        tidy_store(places.store)\n", ""),
        ("linked object directory is refused",
         "if os.path.lexists(objects) and not is_directory(objects):",
         "if False:"),
        ("unknown object directories are removed",
         "if _OBJECT_FOLDER.fullmatch(name) and is", "if is"),
        ("linked object subdirectories are removed",
         "if _OBJECT_FOLDER.fullmatch(name) and is_directory(folder):",
         "if _OBJECT_FOLDER.fullmatch(name):"),
        ("other files among objects are removed",
         "if stat.S_ISREG(info.st_mode) and _OBJECT_FILE.fullmatch(name):",
         "if stat.S_ISREG(info.st_mode):"),
        ("objects must be regular files",
         "if stat.S_ISREG(info.st_mode) and _OBJECT", "if _OBJECT"),
        ("system's git configuration is not read",
         '            "GIT_CONFIG_NOSYSTEM": "1",\n', "", image),
        ("user's git configuration is not read",
         '            "GIT_CONFIG_GLOBAL": os.devnull,\n', "",
         image),
        ("replacement objects are ignored", '            "GIT_NO_REPLACE_OBJECTS": "1",\n', "",
         "defence in depth: the host's git directory has no replacement objects"),
        ("tip must be a commit",
         'if self._git.text_or_empty("cat-file", "-t", commit) != "commit":', "if False:"),
        ("tip must descend from the base",
         'return self._git.text_or_empty("merge-base", self._base, commit) == self._base',
         "return True"),
        ("history must be complete",
         "return self._git.run(*needed).returncode == 0", "return True"),
        ("failing conversions keep no file out", "elif again:", "elif False:"),
        ("invalid name keeps no other file out",
         '*self._sparse, "--ignore-errors",', "*self._sparse,"),
        ("unreadable file keeps no other file out", "        except OSError as error:",
         "        except KeyError as error:"),
        ("full disk ends the harvest", "raise DiskFullError(os.strerror(errno.ENOSPC))", "pass"),
        ("length of read ref lists limited", "self._unread -= len(line)", "pass"),
        ("number of notes limited", "json.dumps(few_notes(self._notes.texts))",
         "json.dumps(self._notes.texts)"),
    )  # fmt: skip
    yield from patches(
        "worker/pack.py", (HELPER,),
        ("program imports only its own modules",
         '"python3", "-I", "-S", "-c"', '"python3", "-S", "-c"',
         "defence in depth: the program runs in a read-only image without variables"),
    )  # fmt: skip
