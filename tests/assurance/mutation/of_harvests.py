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
_MODULES = ("pack_work", "host_git", "safe_files", "store_refs", "object_store", "work_tree",
            "branch_tip", "commit_files")  # fmt: skip


def harvest() -> Iterator[Protection]:
    """Return the checks of a pack, its commits and its trees."""
    yield from patches(
        "files/safe_open.py", (REGULAR, IMPORT),
        ("links not followed", "os.O_RDONLY | no_link | os.O_NONBLOCK",
         "os.O_RDONLY | os.O_NONBLOCK"),
        ("FIFOs not waited for", "os.O_RDONLY | no_link | os.O_NONBLOCK",
         "os.O_RDONLY | no_link"),
        ("regular files alone", "if not stat.S_ISREG(os.fstat(descriptor).st_mode):", "if False:"),
    )  # fmt: skip
    yield from patches(
        "git/quarantine.py git/handed_over.py", (IMPORT, TREES, FUZZ),
        ("files are read in part", "file.read(limit)", "file.read()"),
        ("the tip is an id", "if not _OBJECT_ID.fullmatch(tip):", "if False:"),
        ("packs checked strictly", 'quarantine, origin, "--strict")', "quarantine, origin)"),
        ("pack size", "f\"--max-input-size={MAX_PACK}\",", ""),
        ("delta size", '{"GIT_ALLOC_LIMIT": "256m"}', "{}"),
        ("the tip is a commit", 'if git.text("cat-file", "-t", tip) != "commit":', "if False:"),
        ("ancestry",
         'if origin.on_top and not git.succeeds("merge-base", "--is-ancestor", base, tip):',
         "if False:"),
        ("number of new objects", "if number >= MAX_OBJECTS:", "if False:"),
        ("number of new commits", "limit = MAX_COMMITS * ", "limit = 1000 * MAX_COMMITS * "),
        ("size of a commit", "and size > MAX_MESSAGE:", "and False:"),
        ("total size of new objects", "            _check_total(total, MAX_CHECKOUT)\n", ""),
        ("objects checked in a process that may die", "if \"refused\" in verdict:", "if False:"),
        ("size of a checkout", "    check_size(git, base=", "    (lambda *_, **__: 0)(git, base="),
        ("room of the worker's own", "room = min(origin.room, MAX_CHECKOUT)",
         "room = MAX_CHECKOUT"),
        ("every commit's trees", 'f"{base}..{tip}", limit=limit)', '"-1", tip, limit=limit)'),
        ("nothing but what was given", 'f"{origin.objects}\\n"', 'f"{repository.objects_dir}\\n"'),
        ("quarantine removed", "finally:\n        shutil.rmtree(quarantine, ignore_errors=True)",
         "finally:\n        pass"),
        ("quarantine empty at first", "    shutil.rmtree(quarantine, ignore_errors=True)\n    try:",
         "    try:"),
        ("let in strictly", '"--strict", stdin=file', "stdin=file",
         "the same pack was checked in quarantine: defence in depth"),
        ("notes are a list", "if not isinstance(notes, list):", "if False:"),
        ("notes are texts", "if isinstance(note, str))", ")"),
        ("notes are bounded", "for note in notes[:20]", "for note in notes"),
        ("notes are sanitized", "one_line(note) for note", "note for note"),
        ("deep JSON", "except (ValueError, RecursionError):", "except ValueError:"),
    )  # fmt: skip
    yield from patches(
        "worker/harvest.py", (HELPER,),
        ("branch at its base", "old=request.workspace.start)", 'old="")'),
    )  # fmt: skip
    yield from patches(
        "workspace/plain_files.py", (PLAIN,),
        ("plain: names that git takes literally", "_NAME.fullmatch(n) and", ""),
        ("plain: no disguised git directory", "and n.lower() not in _OF_GIT_DIRECTORIES", ""),
        ("plain: few entries", "self._entries > MOST_ENTRIES or", ""),
        ("plain: few bytes", " or info.st_size > self._room:", ":",
         "a file of more bytes than are read is left to the container in any case"),
        ("plain: one name for a file", "info.st_nlink != 1 or ", ""),
        ("plain: no deep directory", 'if inside.count("/") >= _DEEPEST:', "if False:"),
        ("plain: marks of overlays", "if marks - _HARMLESS - (frozenset() if covers else _NEW):",
         "if False:"),
        ("plain: marks of moved entries", "if marks - _HARMLESS - (frozenset() if covers else",
         "if covers and marks - _HARMLESS - (frozenset() if covers else"),
        ("plain: marks that are hidden", "if os.getuid() != 0:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "git/plain_commit.py", (PLAIN_COMMIT,),
        ("plain: no ignored file", 'return not rules.succeeds("check-ignore"',
         'return bool(rules) or not rules.succeeds("check-ignore"'),
        ("plain: no file with attributes", 'if rules.run("check-attr"',
         'if not rules and rules.run("check-attr"'),
        ("plain: no setting that converts", "if any(settings.get(key) not in allowed",
         "if any(False"),
        ("plain: directories stay directories",
         'if not all(line.startswith(("040000 tree ", "missing ")) for line in folders):',
         "if False:"),
        ("plain: an author cannot end a line", 'character.isprintable() and character not in "<>"',
         "character"),
    )  # fmt: skip
    yield from patches(
        "worker/plain_harvest.py workspace/store_state.py", (PLAIN_HARVEST,),
        ("plain: the store as it was created", "if not is_store_as_created(workspace.store):",
         "if False:"),
        ("plain: HEAD and index as they were", 'for name in ("HEAD", head, "index"))',
         "for name in ())"),
    )  # fmt: skip
    yield from patches(
        "git/tree_checks.py", (TREES, IMPORT, FUZZ),
        ("submodules", "in sorted(forest.gitlinks - gitlinks):", "in ():"),
        ("git directories in disguise", "if forest.disguised - allowed:", "if False:"),
        ("number of files", "if entries > bounds.entries:", "if False:"),
        ("number of files of one directory", "if count > most:", "if False:",
         "its commit is refused for the number of its files: this ends the reading sooner"),
        ("bytes of all paths", "if names > bounds.names:", "if False:"),
        ("names of worktrees",
         "in sorted(forest.prefixed.get(root, set()) - forest.prefixed.get(base, set())):",
         "in ():"),
        ("length of paths", "if longest > room:", "if False:"),
        ("length of names", "if forest.longest_name > longest_name:", "if False:"),
        ("length of links", "most=_PATH_MAX, total=None", "most=1 << 30, total=None"),
        ("links that are empty", "if not target:", "if False:"),
        ("targets of links", 'if b"\\0" in target:', "if False:"),
        ("odd modes", "int(mode, 8) & _KIND", "int(mode, 8)"),
        ("unknown modes", "kind if kind in (_DIRECTORY, _LINK, _FILE) else _GITLINK",
         "kind if kind in (_DIRECTORY, _LINK, _GITLINK) else _FILE"),
        ("depth of trees", "for _ in range(MAX_DEPTH):", "while True:",
         "paths that deep are refused for their length: defence in depth"),
        ("size of a tree", "if size > most or ", "if "),
        ("size of all trees", "(total is not None and total < 0)", "False"),
        ("case of HEAD", "name.lower() in _TELLING:", "name in _TELLING:"),
        ("no tree twice", "wanted -= self._trees.keys()", "wanted = set(wanted)"),
    )  # fmt: skip


def kept() -> Iterator[Protection]:
    """Return the checks of a worker's other commits, and of the refs that keep them."""
    yield from patches(
        "git/kept_refs.py", (KEPT_IMPORT, KEPT),
        ("names are made harmless", '_UNSAFE.sub("_", part[:_LONGEST_PART]) or "_"',
         'part[:_LONGEST_PART] or "_"'),
        ("names are no one's folder", "or name in folders or not", "or not"),
        ("names differ in more than case", "_is_taken(name.lower(), taken",
         "_is_taken(name, taken"),
        ("names are short", "part[:_LONGEST_PART]", "part"),
        ("kept refs are ids", "if not all(_OBJECT_ID.fullmatch(name) for name in (bundle, *(",
         "if not all(name for name in (bundle, *("),
        ("only what was packed is kept", "if not set(parents).issuperset(wanted.values()):",
         "if False:",
         "what was not packed is not in the quarantine and has no size: defence in depth"),
        ("checkouts of kept refs are bounded",
         "check_size(git, base=origin.base, tip=commit, room=origin.room)", "pass"),
        ("no secret in a name", "_without_secrets([name for name, _ in rows], redactor)",
         "[name for name, _ in rows], ()"),
        ("what is refused is told",
         "refused = \"commits that are not on the worker's branch were refused\" if",
         "refused = None if"),
        ("the last good commit is found", "if self.let_in(chain[middle]) is None:", "if False:"),
    )  # fmt: skip
    yield from patches(
        f"{INSIDE}/kept_commits.py {INSIDE}/store_refs.py {INSIDE}/worker_index.py", (KEPT, STATES),
        ("commits in no ref", "for commit in sorted(heads):", "for commit in ():"),
        ("every stash", "for number, entry in enumerate(entries):",
         "for number, entry in enumerate(list(entries)[:1]):"),
        ("what is staged alone", 'self.keep_commit("index", ',
         '(lambda *_: 0)('),
        ("sides of a conflict", "        if sides:\n", "        if False:\n"),
        ("split indexes", 'found = [name for name in os.listdir(self._store) if',
         "found = [name for name in () if"),
    )  # fmt: skip
    yield from patches(
        f"{INSIDE}/commit_files.py {INSIDE}/branch_tip.py", (KEPT, STATES),
        ("files are read that were written", "        forget_times(self._git, self._tree)\n", ""),
        ("files added by force", "        self._take_staged(index, parent)\n", ""),
        ("sparse checkouts delete nothing", "        self._restore_sparse(index, parent)\n", ""),
        ("the branch that HEAD left", "            tip = str(own)\n", "            pass\n"),
        ("no git directory in what is left", "refused = refused_paths(paths, reserved()) - known",
         "refused = set()"),
    )  # fmt: skip


def integration() -> Iterator[Protection]:
    """Return the protections of a merge of several workers' commits."""
    yield from patches(
        "git/merge.py git/merge_tree.py git/sealed_commits.py", (INTEGRATION,),
        ("no drivers of the user's", '    "GIT_CONFIG_GLOBAL": devnull,\n', ""),
        ("no drivers of the system's", '    "GIT_CONFIG_NOSYSTEM": "1",\n', "",
         "no other user can write there: defence in depth"),
        ("no attributes of the system's", '    "GIT_ATTR_NOSYSTEM": "1",\n', "",
         "no other user can write there: defence in depth"),
        ("size of what is merged", '    "GIT_ALLOC_LIMIT": "256m",\n', ""),
        ("no repository of the user's", "return Git(git_dir, work_tree=files",
         "return Git(repository.git_dir, work_tree=files"),
        ("no files of the user's", "return Git(git_dir, work_tree=files",
         "return Git(git_dir, work_tree=repository.top"),
        ("renames are bounded", '"merge.renameLimit": "1000", ', ""),
        ("no merge without end",
         "timeout = max(0.1, self._deadline - time.monotonic())", "timeout = 300.0"),
        ("what git says is bounded", "limit=MOST_SAID, answers", "limit=1 << 27, answers"),
        ("history in common",
         'if not repository.git.succeeds("merge-base", "--is-ancestor", base, tip.commit):',
         "if False:"),
        ("the rules of a harvest", "            check_trees(self._git, ",
         "            (lambda *_, **__: 0)(self._git, "),
        ("names that differ in case", "            self._check_names(commit, tips)\n", ""),
        ("checked before it is let in", '    git.run("index-pack", "--strict", ',
         '    git.run("index-pack", '),
        ("one at a time", "    with repository.lock():\n        accept_pack",
         "    if True:\n        accept_pack",
         "git takes care of that itself: defence in depth"),
        ("quarantine empty at first", "    shutil.rmtree(scratch, ignore_errors=True)\n    try:",
         "    try:"),
        ("quarantine removed", "    finally:\n        shutil.rmtree(scratch, ignore_errors=True)",
         "    finally:\n        pass"),
        ("names are sanitized", "[one_line(fsdecode(path)) for path in paths[:MOST_FILES]]",
         "[fsdecode(path) for path in paths[:MOST_FILES]]"),
        ("few names", "for path in paths[:MOST_FILES]]", "for path in paths]"),
    )  # fmt: skip


def helper() -> Iterator[Protection]:
    """Return the protections of the harvest's own container."""
    image = "nothing that a worker writes is there: defence in depth"
    yield from patches(
        f"{INSIDE}/commit_files.py", ("tests/workspace/test_copy_untracked.py",),
        ("copies in no commit", "        self._leave_copies(parent)\n", ""),
    )  # fmt: skip
    yield from patches(
        f"{INSIDE}/lfs.py {INSIDE}/work_tree.py", (ROOM,),
        ("content of git-lfs counts", "self.room -= info.st_size", "pass"),
        ("size of content is judged unread",
         "if info.st_size > self.room and info.st_size not in self._given.values():", "if False:",
         "it is judged again when it was read: this saves time"),
        ("sparse files count", "if self._holes < 0:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "worker/pack.py", (ROOM,),
        ("what a harvest writes is measured", "if size <= room:", "if True:"),
    )  # fmt: skip
    yield from patches(
        " ".join(f"{INSIDE}/{module}.py" for module in _MODULES), (STORE, HELPER, FUZZ_HELPER,
         "tests/git/test_kept_refs_attacked.py -k read_in_bounded_time"),
        ("links in the store not followed", "os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.",
         "os.open(path, os.O_RDONLY | os."),
        ("FIFOs in the store not waited for", "(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)",
         "(path, os.O_RDONLY | os.O_NOFOLLOW)"),
        ("refs are files", "if not stat.S_ISREG(os.fstat(descriptor).st_mode):", "if False:"),
        ("refs are read in part", "file.read(limit)", "file.read()"),
        ("refs lead nowhere else", '".." not in text and depth', "depth"),
        ("refs end", "and depth:", "and True:"),
        ("refs are ids", "return text if _OBJECT_ID.fullmatch(text) else None", "return text"),
        ("special files removed", "            os.unlink(path)\n", "            pass\n"),
        ("nested repositories taken apart", "os.rename(path, free_name(os.path.join(folder, NESTED",
         "(lambda *_: 0)(path, free_name(os.path.join(folder, NESTED"),
        ("locked files opened", "        os.chmod(path, mode | bits)", "        pass"),
        ("large files left out",
         "            self.left_out[path] = _TOO_LARGE\n            return\n",
         "            return\n"),
        ("what is left out is that alone", ":(exclude,top,literal){path}",
         ":(exclude,top){path}"),
        ("only objects in the store", "        tidy_store(places.store)\n", ""),
        ("objects are no link", "if os.path.lexists(objects) and not is_directory(objects):",
         "if False:"),
        ("folders of objects alone", "if _OBJECT_FOLDER.fullmatch(name) and is", "if is"),
        ("folders of objects are no links",
         "if _OBJECT_FOLDER.fullmatch(name) and is_directory(folder):",
         "if _OBJECT_FOLDER.fullmatch(name):"),
        ("objects alone in their folders",
         "if stat.S_ISREG(info.st_mode) and _OBJECT_FILE.fullmatch(name):",
         "if stat.S_ISREG(info.st_mode):"),
        ("objects are files", "if stat.S_ISREG(info.st_mode) and _OBJECT", "if _OBJECT"),
        ("system's configuration not read", '            "GIT_CONFIG_NOSYSTEM": "1",\n', "", image),
        ("user's configuration not read", '            "GIT_CONFIG_GLOBAL": os.devnull,\n', "",
         image),
        ("replacements not believed", '            "GIT_NO_REPLACE_OBJECTS": "1",\n', "",
         "the host's git directory has no replacements: defence in depth"),
        ("its last commit is one",
         'if self._git.text_or_empty("cat-file", "-t", commit) != "commit":', "if False:"),
        ("history on the base",
         'return self._git.text_or_empty("merge-base", self._base, commit) == self._base',
         "return True"),
        ("history is whole", "return self._git.run(*needed).returncode == 0", "return True"),
        ("bad encodings", "elif again:", "elif False:"),
        ("one bad name keeps nothing out", '*self._sparse, "--ignore-errors",', "*self._sparse,"),
        ("what cannot be read keeps nothing out", "        except OSError as error:",
         "        except KeyError as error:"),
        ("a full disk ends the harvest", "raise DiskFullError(os.strerror(errno.ENOSPC))", "pass"),
        ("lists of refs are read in part", "self._unread -= len(line)", "pass"),
        ("few notes", "json.dumps(few_notes(self._notes.texts))",
         "json.dumps(self._notes.texts)"),
    )  # fmt: skip
    yield from patches(
        "worker/pack.py", (HELPER,),
        ("nothing imported from elsewhere", '"python3", "-I", "-S", "-c"', '"python3", "-S", "-c"',
         "it runs in the root of a read-only image, with no variables: defence in depth"),
    )  # fmt: skip
