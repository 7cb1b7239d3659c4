"""Every protection as a patch that takes it away, and the tests that should notice."""

from collections.abc import Iterator
from dataclasses import dataclass

ISOLATION = "tests/contract/test_docker_isolation.py"
RULES = "tests/unit/test_network_rules.py"
FLAGS = "tests/contract/test_docker_flags.py"
ENGINE = "tests/contract/test_engine_contract.py"
NETWORK = "tests/docker/test_network.py"
ACCEPTANCE = "tests/docker/test_acceptance.py"
IMPORT = "tests/unit/test_harvest_import.py"
TREES = "tests/unit/test_harvest_trees.py"
HELPER = "tests/unit/test_harvest_helper.py"
GATE = "tests/git/test_gate.py"
FUZZ = "tests/fuzz/test_import.py"
FUZZ_HELPER = "tests/fuzz/test_helper.py"
RUNS = "tests/unit/test_runner.py tests/unit/test_runner_repositories.py"
LIMITS = "tests/unit/test_meter.py"
CLEANUP = "tests/git/test_cleanup.py"
CORPUS = "tests/attacks/test_corpus.py"

_PACKAGE = "orchestrator/"
_CONTAINER = "engine/docker/container.py"
_GUARD = "engine/docker/guard.py"


@dataclass(frozen=True)
class Protection:
    """Something that is taken away to see whether anything notices."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Arguments for pytest, tried one after the other until one fails."""
    why_not: str = ""
    """Why nothing can be expected to notice."""


def _patches(
    path: str, tests: tuple[str, ...], *rows: tuple[str, str, str] | tuple[str, str, str, str]
) -> Iterator[Protection]:
    for name, old, new, *why in rows:
        yield Protection(name, _PACKAGE + path, old, new, tests, *why)


def _container() -> Iterator[Protection]:
    yield from _patches(
        _CONTAINER, (ISOLATION, FLAGS, ENGINE),
        ("capabilities dropped", 'cap_drop=["ALL"]', "cap_drop=[]"),
        ("no new privileges", 'security_opt=["no-new-privileges"]', "security_opt=[]"),
        ("root read-only", "read_only=True,\n        ipc", "read_only=False,\n        ipc"),
        ("init", "init=True", "init=False"),
        ("user", '"user": spec.user', '"user": ""'),
        ("memory limit", "mem_limit=spec.memory,\n        memswap_limit=spec.memory,", ""),
        ("no swap beyond memory", "memswap_limit=spec.memory", "memswap_limit=None"),
        ("process limit", "pids_limit=spec.pids", "pids_limit=None"),
        ("CPU limit", "nano_cpus=int(spec.cpus * 1e9) if spec.cpus else None", "nano_cpus=None"),
        ("open files limit",
         'Ulimit(name="nofile", soft=spec.open_files, hard=spec.open_files),', ""),
        ("no core dumps", 'Ulimit(name="core", soft=0, hard=0),', ""),
        ("private IPC", 'ipc_mode="private"', 'ipc_mode="shareable"'),
        ("daemon's log bounded", 'config=_LOG)', "config={})"),
        ("tmpfs size", "size={mount.size},", ""),
        ("tmpfs inodes", "nr_inodes={mount.inodes},", ""),
        ("tmpfs nosuid", "nosuid,", "", "the daemon adds it by itself: defence in depth"),
        ("tmpfs nodev", "nodev,", "", "the daemon adds it by itself: defence in depth"),
        ("tmpfs mode", "mode={mount.mode},", ""),
        ("ports on 127.0.0.1 alone", '("127.0.0.1", host)', '("0.0.0.0", host)'),
        ("no entrypoint of the image's", '"entrypoint": [],', ""),
        ("no health check of the image's", '"healthcheck": {"test": ["NONE"]},', ""),
        ("read-only mounts", "read_only=mount.read_only", "read_only=False"),
        ("anonymous volumes removed", "v=True, force=True", "v=False, force=True"),
        ("paused containers can be stopped", 'if state["Paused"]:', "if False:",
         "newer daemons thaw one that is stopped by themselves"),
    )  # fmt: skip


def _engine() -> Iterator[Protection]:
    yield from _patches(
        "engine/docker/engine.py", (FLAGS, ISOLATION, ENGINE),
        ("volumes of the image in memory",
         "mounts=(*spec.mounts, *tmpfs)", "mounts=spec.mounts"),
        ("workers of a network apart",
         'options={"com.docker.network.bridge.enable_icc": "false"},', ""),
    )  # fmt: skip


def _guard() -> Iterator[Protection]:
    networks = ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
                "100.64.0.0/10", "224.0.0.0/4")  # fmt: skip
    yield from _patches(
        _GUARD, (RULES, FLAGS, NETWORK),
        *((f"{network} closed", f'"{network}"', '"198.51.100.0/24"') for network in networks),
        ("own addresses closed", "(*_CLOSED, *own_addresses())", "_CLOSED"),
        ("IPv6 closed", '"meta nfproto ipv6 reject",', ""),
        ("rules stand before the worker starts", "        _await_ready(guard)\n", ""),
        ("guard has one capability", 'capabilities=("NET_ADMIN",)',
         'capabilities=("NET_ADMIN", "SYS_ADMIN")',
         "nothing of a worker runs in it: defence in depth"),
        ("guard sees no files", "mounts=(),\n", "",
         "nothing of a worker runs in it: defence in depth"),
    )  # fmt: skip


def _git() -> Iterator[Protection]:
    deep = "defence in depth: every command that could is told so by an option as well"
    tests = (GATE, "tests/git", FUZZ, RUNS)
    yield from _patches(
        "git.py", tests,
        ("hooks off", '    "core.hooksPath": os.devnull,\n', ""),
        ("fsmonitor off", '    "core.fsmonitor": "false",\n', ""),
        ("pager off", '    "core.pager": "cat",\n', "", "we have no terminal for git"),
        ("attributes file off", '    "core.attributesFile": os.devnull,\n', ""),
        ("alternate refs command off", '    "core.alternateRefsCommand": "true",\n', ""),
        ("large files are not held in memory", '    "core.bigFileThreshold": "128m",\n', "",
         "bounds memory; seen by `/proc`, not by a test"),
        ("commit graphs not believed", '    "core.commitGraph": "false",\n', "",
         "no graph of a worker's reaches a repository of ours: defence in depth"),
        ("no signing program", '    "commit.gpgSign": "false",\n', "",
         "`commit-tree` does not look at it: defence in depth"),
        ("submodules not entered", '    "submodule.recurse": "false",\n', "", deep),
        ("submodules not looked into", '    "diff.ignoreSubmodules": "all",\n', ""),
        ("no external diff", '    "diff.external": "",\n', ""),
        ("no commit graph written", '    "fetch.writeCommitGraph": "false",\n', "",
         "`core.commitGraph` has the same effect: defence in depth"),
        ("no gc", '    "gc.auto": "0",\n    "maintenance.auto": "false",\n', ""),
        ("no protocols", '    "protocol.allow": "never",\n', ""),
        ("no repository found by chance", '    "safe.bareRepository": "explicit",\n', "",
         "git is told where a repository is, always: defence in depth"),
        ("fetches are checked", '    "transfer.fsckObjects": "true",\n', ""),
        ("no lazy fetch", '    "GIT_NO_LAZY_FETCH": "1",\n', "",
         "needs a partial clone whose remote answers"),
        ("no replacements", '    "GIT_NO_REPLACE_OBJECTS": "1",\n', ""),
        ("no optional locks", '    "GIT_OPTIONAL_LOCKS": "0",\n', ""),
        ("no prompt", '    "GIT_TERMINAL_PROMPT": "0",\n', "", "needs a terminal"),
        ("no LFS download", '    "GIT_LFS_SKIP_SMUDGE": "1",\n', "", "needs git-lfs"),
        ("clean environment", "{key: os.environ[key] for key in _KEPT if key in os.environ}",
         "dict(os.environ)"),
    )  # fmt: skip


def _harvest() -> Iterator[Protection]:
    yield from _patches(
        "harvest.py", (IMPORT, TREES, FUZZ),
        ("links not followed", "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
         "os.O_RDONLY | os.O_NONBLOCK"),
        ("FIFOs not waited for", "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
         "os.O_RDONLY | os.O_NOFOLLOW"),
        ("regular files alone", "if not stat.S_ISREG(os.fstat(descriptor).st_mode):", "if False:"),
        ("the tip is an id", "if not _OBJECT_ID.fullmatch(tip):", "if False:"),
        ("packs checked strictly", '"--fix-thin", "--strict",', '"--fix-thin",'),
        ("pack size", "f\"--max-input-size={MAX_PACK}\",", ""),
        ("delta size", '{"GIT_ALLOC_LIMIT": _LARGEST_DELTA}', "{}"),
        ("the tip is a commit", 'if git.text("cat-file", "-t", tip) != "commit":', "if False:"),
        ("ancestry", 'if not git.succeeds("merge-base", "--is-ancestor", base, tip):', "if False:"),
        ("total size of new objects", "    _check_total(git, new, ",
         "    (lambda *_: 0)(git, new, "),
        ("submodules", "for name, _ in forest.gitlinks - known.gitlinks:", "for name, _ in ():"),
        ("git directories in disguise", "if forest.disguised - allowed:", "if False:"),
        ("number of files", "if forest.size(root) > most:", "if False:"),
        ("names of worktrees", "if name.startswith(DIRECTORIES.encode()):", "if False:"),
        ("length of paths", "if too_long or forest", "if forest"),
        ("length of names",
         "if too_long or forest.longest_name > max(_NAME_MAX, known.longest_name):",
         "if too_long:"),
        ("length of links", "if not all(0 < size <= _PATH_MAX for size in _sizes(git, ids)):",
         "if False:"),
        ("targets of links", 'if b"\\0" in targets:', "if False:"),
        ("size of a checkout", "    _check_size(git, base", "    (lambda *_, **__: 0)(git, base"),
        ("every commit's trees", 'f"{base}..{tip}", limit=_LISTING)\n    roots',
         '"-1", tip, limit=_LISTING)\n    roots'),
        ("nothing but what was given", 'f"{origin.objects}\\n"', 'f"{repository.objects_dir}\\n"'),
        ("quarantine removed", "shutil.rmtree(quarantine, ignore_errors=True)", "pass"),
        ("branch at its base", "old=origin.base)", 'old="")'),
        ("notes are texts", "if isinstance(note, str))", ")"),
        ("notes are bounded", "for note in notes[:20]", "for note in notes"),
        ("notes are sanitized", "one_line(note) for note", "note for note"),
        ("deep JSON", "(ValueError, RecursionError, HarvestRefusedError)",
         "(ValueError, HarvestRefusedError)"),
    )  # fmt: skip
    yield from _patches(
        "trees.py", (TREES, IMPORT, FUZZ),
        ("odd modes", "int(mode, 8) & _KIND", "int(mode, 8)"),
        ("depth of trees", "for _ in range(MAX_DEPTH):", "while True:",
         "the length of paths is bounded as well: defence in depth"),
        ("case of HEAD", "{name.lower() for name in self.names}", "self.names"),
        ("no tree twice", "wanted -= self._trees.keys()", "wanted = set(wanted)",
         "saves time on honest trees; a tree cannot hold itself"),
    )  # fmt: skip


def _helper() -> Iterator[Protection]:
    yield from _patches(
        "harvest_helper.py", (HELPER, FUZZ_HELPER),
        ("links in the store not followed", "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
         "os.O_RDONLY | os.O_NONBLOCK",
         "in the container a link leads to nothing that is not the worker's: defence in depth"),
        ("FIFOs in the store not waited for", "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
         "os.O_RDONLY | os.O_NOFOLLOW"),
        ("refs lead nowhere else", '".." not in text and depth', "depth",
         "in the container there is nothing but the worker's own: defence in depth"),
        ("refs end", "and depth:", "and True:"),
        ("special files removed", "            os.unlink(entry.path)\n", "            pass\n"),
        ("nested repositories taken apart", "                os.rename(entry.path, free_name",
         "                (lambda *_: 0)(entry.path, free_name"),
        ("locked files opened", "        os.chmod(path, mode | bits)", "        pass"),
        ("large files left out",
         "self.left_out.append(os.path.relpath(entry.path, self.workspace))", "pass"),
        ("only objects in the store", "    harvest.tidy_store()\n", ""),
        ("system's configuration not read", '            "GIT_CONFIG_NOSYSTEM": "1",\n', "",
         "the image's own file, which no worker writes: defence in depth"),
        ("replacements not believed", '            "GIT_NO_REPLACE_OBJECTS": "1",\n', "",
         "the host's git directory has no replacements: defence in depth"),
        ("history on the base",
         'if self.git("merge-base", base, commit, check=False) != base:', "if False:"),
        ("bad encodings", "elif again:", "elif False:"),
        ("one bad name keeps nothing out", '"add", "--all", "--ignore-errors",', '"add", "--all",'),
        ("base's objects first", '"{objects}:{store}/objects"', '"{store}/objects:{objects}"'),
    )  # fmt: skip


def _workspace() -> Iterator[Protection]:
    deep = "what a worker does to it is not read by the host: defence in depth"
    yield from _patches(
        "workspace.py", ("tests/unit/test_workspace.py", f"{CORPUS} -k 11-objects"),
        ("pointer read-only", 'target=f"{WORKSPACE}/.git", read_only=True',
         'target=f"{WORKSPACE}/.git", read_only=False',
         "the host has a `.git` of its own, and never reads this one: defence in depth"),
        ("objects read-only", "target=OBJECTS, read_only=True", "target=OBJECTS, read_only=False"),
        ("no root inside", "if os.getuid() == 0:", "if False:"),
    )  # fmt: skip
    yield from _patches(
        "workspace.py", ("tests/git/test_remove_tree.py",),
        ("removal follows no link", "if not stat.S_ISDIR(entry.lstat().st_mode):",
         "if not stat.S_ISDIR(entry.stat().st_mode):"),
        ("removal unlocks no link's target", "if stat.S_ISDIR(directory.lstat().st_mode):",
         "if True:", "links are removed before it comes to that: defence in depth"),
        ("nothing removed through a link", "if path.is_symlink():", "if False:"),
        ("removal at any depth", "path.rename(next(spare))", "_empty(path, spare)"),
    )  # fmt: skip
    yield from _patches(
        "store.py",
        ("tests/unit/test_workspace.py", RUNS, f"{CORPUS} -k 13-read or 106-f or 107-f"),
        ("the base's objects alone", '"--revs", stdin=f"{base}\\n".encode()',
         '"--all", stdin=b""'),
        ("objects not writable", "(Path(folder) / name).chmod(0o444)",
         "(Path(folder) / name).chmod(0o666)", deep),
        ("no gc of the worker's",
         "[gc]\\n\\tauto = 0\\n[maintenance]\\n\\tauto = false\\n", "", deep),
        ("owners changed without following links",
         "os.lchown(os.path.join(folder, name), uid, gid)",
         "os.chown(os.path.join(folder, name), uid, gid)"),
    )  # fmt: skip
    yield from _patches(
        "worktree.py", ("tests/git/test_drivers.py", RUNS, f"{ACCEPTANCE} -k filters"),
        ("filters off when a worktree is added",
         "git = Git(repository.git_dir, work_tree=repository.top, "
         "config=repository.without_filters())",
         "git = repository.git"),
        ("filters off when it is updated", "git = Git(self.git_dir, work_tree=self.path, "
         "config=repository.without_filters())",
         "git = Git(self.git_dir, work_tree=self.path)"),
        ("programs of the tree kept off", "    keep_off(repository, path, worktree.git_dir)\n", ""),
        ("the user's changes not overwritten", '"read-tree", "-m", "-u"',
         '"read-tree", "--reset", "-u"'),
    )  # fmt: skip


def _limits() -> Iterator[Protection]:
    ends = (LIMITS, RUNS, f"{ACCEPTANCE} -k disk_log_inodes")
    yield from _patches(
        "meter.py", ends,
        ("disk limit", "if written > limits.disk:", "if False:"),
        ("file limit", "elif made > limits.inodes:", "elif False:"),
    )  # fmt: skip
    yield from _patches(
        "meter.py", (LIMITS, "tests/attacks/test_limits.py"),
        ("locked directories", "elif self._locked * _MEASURE_DISK > _PATIENCE * MEASURE:",
         "elif False:"),
        ("fork bombs ended", "if self._at_pids_limit >= _PATIENCE:", "if False:"),
    )  # fmt: skip
    yield from _patches(
        "execution.py", ends,
        ("log limit", "if self.log.size > limits.log_limit:", "if False:"),
        ("silence", "if limits.idle_timeout and", "if False and"),
        ("deadline", "if now >= deadline:", "if False:"),
        ("budget", "if terms.budget is not None and", "if False and"),
        ("SIGKILL after grace", '        self.container.kill("SIGKILL")\n', ""),
        ("removed whatever happens", "        with suppress(OrchestratorError):\n"
         "            container.remove()\n        raise", "        raise"),
    )  # fmt: skip
    yield from _patches(
        "logs.py", ("tests/unit/test_logs.py", "tests/unit/test_runner_secrets.py"),
        ("log on disk bounded", "kept = data[: self._room]", "kept = data"),
        ("lines bounded", "(started + tail)[:_LINE]", "started + tail"),
        ("lines sanitized", 'line = one_line(raw[:1000].decode("utf-8", "replace").strip())',
         'line = raw[:1000].decode("utf-8", "replace").strip()'),
        ("secrets out of the log", "self._redacted[chunk.stream].feed(chunk.data)", "chunk.data"),
    )  # fmt: skip
    yield from _patches(
        "diskuse.py", (LIMITS, RUNS, "tests/attacks/test_limits.py"),
        ("measuring follows no link", "entry.stat(follow_symlinks=False)", "entry.stat()"),
        ("measuring is bounded", "while pending and files <= most_files:", "while pending:"),
        ("hard links count once",
         "if info.st_nlink == 1 or info.st_ino not in linked:", "if True:"),
    )  # fmt: skip


def _words() -> Iterator[Protection]:
    yield from _patches(
        "sanitize.py", ("tests/unit/test_sanitize.py",),
        ("control characters", '{"Cc", "Cf"', '{"Cf"'),
        ("invisible characters", '"Cf", ', ""),
        ("length", "clean if len(clean) <= limit else clean[: limit - 1] + ELLIPSIS", "clean"),
    )  # fmt: skip
    yield from _patches(
        "redact.py", ("tests/unit/test_redact.py",),
        ("secrets replaced",
         "self._expression.sub(lambda found: self._label(found[0]), data)", "data"),
        ("secrets in base64",
         "        yield from _base64_forms(piece, before)\n", "        pass\n"),
        ("secrets in hex", "    yield from _hex_forms(piece)\n", ""),
        ("secrets across chunks", "cut = len(data) - self._undecided(data)", "cut = len(data)"),
    )  # fmt: skip
    yield from _patches(
        "judge.py", ("tests/unit/test_judge.py",),
        ("what was seen outranks what is claimed",
         "    if seen is not None:\n        return seen\n", ""),
        ("a failed exit is no success", "    if failed and ending.exit_status is not None:\n"
         "        code", "    if False and ending.exit_status is not None:\n        code"),
    )  # fmt: skip


def _cleanup() -> Iterator[Protection]:
    yield from _patches(
        "cleanup.py", (CLEANUP, f"{ACCEPTANCE} -k cleanup"),
        ("backups", '                    repository.git.run("update-ref", backup, kept)\n',
         "                    pass\n"),
        ("live runs left alone", "if run.is_live())", "if False)"),
        ("filters off in a snapshot", "            config=repository.without_filters(),\n", ""),
        ("backups not overwritten", "if held is None or repository.git.succeeds(",
         "if True or repository.git.succeeds("),
        ("a branch checked out elsewhere stays", "    if elsewhere:\n", "    if False:\n"),
        ("a directory that is no worktree stays",
         "if worker.path.exists() and _worktree(worker) is None:", "if False:"),
        ("objects of other runs stay", "if left.labels.get(RUN) in ids]", "]"),
    )  # fmt: skip
    yield from _patches(
        "record.py", ("tests/unit/test_record.py",),
        ("records are the user's own", "self.path.chmod(0o700)", "self.path.chmod(0o755)"),
        ("the caller's variables not recorded", 'exclude={"config": hidden}', "exclude={}"),
    )  # fmt: skip


PROTECTIONS: dict[str, tuple[Protection, ...]] = {
    "container": tuple(_container()),
    "engine": tuple(_engine()),
    "network": tuple(_guard()),
    "git": tuple(_git()),
    "harvest": tuple(_harvest()),
    "helper": tuple(_helper()),
    "workspace": tuple(_workspace()),
    "limits": tuple(_limits()),
    "words": tuple(_words()),
    "cleanup": tuple(_cleanup()),
}
