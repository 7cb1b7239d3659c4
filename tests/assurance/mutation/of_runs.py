"""Protections of a run: limits of workers, secrets of the caller, and no lost work."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

RUNS = "tests/runs/test_runner.py tests/runs/test_repositories.py"
LIMITS = "tests/execution/test_limits.py"
DEADMAN = "tests/execution/test_dead_man_switch.py"
UNWATCHED = "tests/system/test_dead_man_switch.py"
ACCEPTANCE = "tests/system/test_acceptance.py"
CLEANUP = "tests/cleanup/test_remove.py"


def workspace() -> Iterator[Protection]:
    """Return the protections of a worker's view of the host."""
    yield from patches(
        "workspace/mounts.py",
        ("tests/workspace/test_private_git.py",),
        ("pointer read-only", 'target=f"{WORKSPACE}/.git", read_only=True',
         'target=f"{WORKSPACE}/.git", read_only=False'),
        ("objects read-only", "target=OBJECTS, read_only=True", "target=OBJECTS, read_only=False"),
        ("read-only store", "target=STORE, read_only=self.read_only",
         "target=STORE, read_only=False"),
        ("read-only checkout", "target=WORKSPACE, read_only=self.read_only",
         "target=WORKSPACE, read_only=False"),
        ("read-only worktree", "            read_only=self.read_only,\n        )", "        )"),
    )  # fmt: skip
    confined = ("tests/workspace/test_confined.py", "tests/system/test_enforced_paths.py")
    yield from patches(
        "workspace/mounts.py", confined,
        ("all but the paths is read-only (overlay)",
         "target=WORKSPACE,\n            read_only=True,\n        )\n        return whole_view",
         "target=WORKSPACE,\n        )\n        return whole_view"),
        ("all but the paths is read-only (bind)",
         "source=self.store.copy, target=WORKSPACE, read_only=True",
         "source=self.store.copy, target=WORKSPACE, read_only=False"),
        ("no path of a part in the layer of the whole", "redirects=False,", "redirects=True,"),
        ("scratch of root's is emptied", "            *self._swept(),\n", ""),
    )  # fmt: skip
    yield from patches(
        "workspace/confined.py", confined,
        ("nothing mounted through a link", "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW",
         "os.O_RDONLY | os.O_DIRECTORY"),
        ("a file in the place of a directory", "entry and not entry.startswith(_TREE)",
         "False and entry"),
        ("submodules refused", "entry.startswith(_GITLINK)", "False"),
        ("what is written elsewhere refused", "if dotenv is not None and not any(",
         "if False and not any("),
        ("no enforcement without paths", "if not config.triggers.paths:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "text/path_patterns.py", confined,
        ("no option of an overlay in a path", "not _UNMOUNTABLE.isdisjoint(text)", "False"),
        ("wildcards are no directory", "why is None and is_wild(text)", "False"),
    )  # fmt: skip
    yield from patches(
        "worker/prepare.py", confined,
        ("the mounts' directories are made, through no link",
         "    workspace.confine()\n", "    pass\n"),
        ("confined as it was asked",
         "        confined_to=confined_to(worker.config),\n        caches", "        caches"),
    )  # fmt: skip
    yield from patches(
        "files/remove_tree.py",
        ("tests/files/test_remove_tree.py",),
        ("removal follows no link", "if not stat.S_ISDIR(entry.lstat().st_mode):",
         "if not stat.S_ISDIR(entry.stat().st_mode):"),
        ("removal follows no link further down", "if not child.is_dir(follow_symlinks=False):",
         "if not child.is_dir():", "each is looked at again where it moves to: defence in depth"),
        ("nothing removed through a link", "if path.is_symlink():", "if False:"),
        ("removal at any depth", "path.rename(next(spare))", "_removed(path, spare, 0)"),
        ("what is locked is removed", "            directory.chmod(0o700)\n", "            pass\n"),
    )  # fmt: skip
    yield from patches(
        "git/object_packs.py", ("tests/workspace/test_private_git.py", RUNS),
        ("the base's objects alone", '"--revs", stdin=f"{commit}\\n".encode()',
         '"--all", stdin=b""'),
        ("objects not writable", "(Path(folder) / name).chmod(0o444)",
         "(Path(folder) / name).chmod(0o666)"),
    )  # fmt: skip
    yield from patches(
        "workspace/copy_untracked.py",
        ("tests/workspace/test_copy_untracked.py",),
        ("copies through no link", "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW",
         "os.O_RDONLY | os.O_DIRECTORY"),
    )  # fmt: skip
    yield from patches(
        "workspace/untracked.py", ("tests/workspace/test_copy_untracked.py",),
        ("secrets copied by name alone", "    _refuse_secrets(asked, patterns)\n", ""),
        ("links out of the repository not copied", "_leads_out(top, path):", "False:"),
    )  # fmt: skip
    yield from patches(
        "git/lfs.py", ("tests/git/test_lfs.py",),
        ("objects are what their names say", ".hexdigest() == oid\n", ".hexdigest() != \"\"\n"),
        ("no more objects than there is room for", "if size > room:", "if False:"),
        ("no content by its name alone", "if one.oid in known)", ")"),
    )  # fmt: skip
    yield from patches(
        "workspace/owner.py", ("tests/workspace/test_private_git.py",),
        ("no root inside", "if os.getuid() == 0:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "workspace/shared_checkout.py", ("tests/workspace/test_shared_checkout.py",),
        ("a changed checkout is not shared", "if not c.exists() or is_intact(c)", "if True"),
        ("change times are compared", "(info.st_mtime_ns, info.st_ctime_ns)",
         "(info.st_mtime_ns,)"),
        ("owners are compared", "info.st_ino, info.st_uid, info.st_gid,", "info.st_ino,",
         "a change of owner changes the change time: defence in depth"),
        ("the index is compared", 'hashlib.sha256((worktree.git_dir / "index").read_bytes())',
         "hashlib.sha256()"),
        ("only the caller enters", "or info.st_mode & 0o077", ""),
        ("settings decide which checkout is shared", '        "settings": settings,\n', ""),
        ("attributes decide which checkout is shared",
         '        repository.common_dir / "info" / "attributes",\n', ""),
        ("a checkout in use is kept", "and path.name not in used", ""),
        ("what a killed process left is not shared", "    remove_tree(half)\n", ""),
    )  # fmt: skip
    yield from patches(
        "worker/prepare.py workspace/mounts.py",
        ("tests/system/test_shared_checkouts.py -k overlay",),
        ("nothing is added to a shared checkout",
         "if not extras.are_none or confined_to(worker.config):", "if False:"),
        ("the owner of a shared checkout stays",
         "        if self.is_shared:\n            return\n", ""),
    )  # fmt: skip
    yield from patches(
        "files/owner.py", ("tests/files/test_owner.py",),
        ("owners changed without following links", '"-h", "-R", "-P"', '"-R", "-L"'),
        ("owners changed without following links, by hand",
         "dir_fd=descriptor, follow_symlinks=False)", "dir_fd=descriptor)"),
        ("the caller's git trusts a worktree", ' if path.name != ".git"', ""),
    )  # fmt: skip
    yield from patches(
        "git/submodules.py", ("tests/git/test_submodules_are_checked_out.py",),
        ("names of submodules lead nowhere else", ' and _is_usable(name):', ":"),
    )  # fmt: skip
    yield from patches(
        "workspace/private_git.py",
        ("tests/workspace/test_private_git.py", "tests/worker/test_harvest.py", RUNS),
        ("no gc of the worker's",
         "[gc]\\n\\tauto = 0\\n[maintenance]\\n\\tauto = false\\n", ""),
        ("settings are one line each", '.replace("\\n", " ")', ""),
        ("filters off in a worker's checkout",
         '        index=store.root / "index",\n        config=repository.without_filters(),\n',
         '        index=store.root / "index",\n'),
    )  # fmt: skip
    yield from patches(
        "git/checkout.py git/worktree.py",
        ("tests/git/test_worktree.py", "tests/git/test_disarm.py", RUNS,
         f"{ACCEPTANCE} -k filters"),
        ("filters off when files are checked out",
         "config = {**repository.without_filters(), **repository.settings(_SPARSE)}",
         "config = repository.settings(_SPARSE)"),
        ("filters off when it is updated", "return Git(self.git_dir, work_tree=self.path, "
         "config=repository.without_filters())",
         "return Git(self.git_dir, work_tree=self.path)"),
        ("programs of the tree kept off", "keep_off(repository, worktree.path, worktree.git_dir)\n",
         "pass\n"),
        ("an index that the user's git changes is left alone",
         'lock.open("xb")', 'lock.open("wb")'),
        ("no file is taken for unchanged", '"--no-assume-unchanged", ', '"--refresh", '),
        ("young files are compared", "        shutil.copystat(index, lock)\n", ""),
        ("a worker owns no file that git trusts",
         "os.chown(self.git_dir / \"index\", os.getuid(), os.getgid())\n", "pass\n"),
        ("the user's changes not overwritten", '"read-tree", "-m", "-u"',
         '"read-tree", "--reset", "-u"'),
    )  # fmt: skip


def limits() -> Iterator[Protection]:
    """Return the protections that end a worker."""
    ends = (LIMITS, RUNS, f"{ACCEPTANCE} -k disk_log_inodes")
    yield from patches(
        "execution/limits.py", ends,
        ("disk limit", "if written > limits.disk:", "if False:"),
        ("file limit", "elif made > limits.inodes:", "elif False:"),
    )  # fmt: skip
    yield from patches(
        "execution/limits.py", (LIMITS, "tests/assurance/attacks/test_limits.py"),
        ("locked directories", "elif self._locked * _MEASURE_DISK > _PATIENCE * MEASURE:",
         "elif False:"),
        ("fork bombs ended", "if self._at_pids_limit >= _PATIENCE:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "execution/supervisor.py",
        ends,
        ("log limit", "if self.log.size > limits.log_limit:", "if False:"),
        ("silence", "if limits.idle_timeout and", "if False and"),
        ("deadline", "if now >= deadline:", "if False:"),
        ("budget", "if terms.budget is not None and", "if False and"),
        ("SIGKILL after grace", '        self.container.kill("SIGKILL")\n', ""),
    )  # fmt: skip
    yield from patches(
        "execution/launch.py",
        ("tests/scheduling/test_scheduler.py",),
        ("removed when it does not start", "        container.remove()\n        raise",
         "        raise"),
    )  # fmt: skip
    yield from patches(
        "worker/agent_container.py",
        ("tests/scheduling/test_scheduler.py", "tests/runs/test_runner.py"),
        ("removed at its end", "        problem = _removed(running.container)\n",
         "        problem = None\n"),
        ("removed whatever happens", "            _removed(running.container)\n            raise",
         "            raise"),
    )  # fmt: skip
    yield from patches(
        "execution/output.py", ("tests/execution/test_output.py", "tests/runs/test_secrets.py"),
        ("log on disk bounded", "kept = data[: self._room]", "kept = data"),
        ("lines bounded", "(started + tail)[:_LINE]", "started + tail"),
        ("lines sanitized", 'line = one_line(raw[:1000].decode("utf-8", "replace").strip())',
         'line = raw[:1000].decode("utf-8", "replace").strip()'),
        ("secrets out of the log", "self._redacted[chunk.stream].feed(chunk.data)", "chunk.data"),
        ("secrets out of a log's end", "self._take(stream, redacted.flush())",
         "self._take(stream, redacted._held)"),
    )  # fmt: skip
    yield from patches(
        "files/disk_usage.py", (LIMITS, RUNS, "tests/assurance/attacks/test_limits.py"),
        ("measuring is bounded", "if late or files > most_files:", "if False:"),
        ("hard links count once",
         "if info.st_nlink == 1 or info.st_ino not in linked:", "if True:"),
    )  # fmt: skip
    yield from patches(
        "files/walk.py", ("tests/files/test_walk.py", LIMITS),
        ("walks follow no link", "os.O_NOFOLLOW | ", ""),
        ("walks see links as links", "entry.stat(follow_symlinks=False)", "entry.stat()"),
        ("walks go by descriptor", "os.open(name, _DIRECTORY, dir_fd=self._end())",
         'os.open(f"/proc/self/fd/{self._kept[0]}/{path}", _DIRECTORY)'),
        ("walks stay on one file system", "and info.st_dev == device:", "and True:"),
        ("walks end in time", "time.monotonic() >= self._until", "False"),
        ("walks hold few descriptors", "len(self._kept) <= _OPEN:", "True:"),
        ("what vanishes hides nothing", "            except FileNotFoundError:\n"
         "                continue\n            except OSError:\n                self.hidden += 1\n"
         "                return",
         "            except OSError:\n                self.hidden += 1\n                return"),
    )  # fmt: skip
    yield from patches(
        "execution/dead_man_process.py", (DEADMAN, UNWATCHED),
        ("killed when late", "if at_once or self._moment(one) <= now", "if at_once"),
        ("services do not stay for ever", "        for worker in self._idle:\n"
         "            self._running[worker] = uptime() + RESUME\n", ""),
        ("the switch gives way to a resumed run", "or self._is_replaced)", "or False)"),
        ("the switch gives way to a resumed run alone", "        if self._mark is None:\n"
         "            self._mark = self._sign()\n", ""),
        ("what nobody can resume ends at once", "switch.is_lost or (asked", "(asked"),
        ("a kill that failed is tried again", "return status == 0", "return True"),
        ("a signal ends what nobody watches", "(asked and switch.alone)", "False"),
        ("a signal ends no run", "(asked and switch.alone)", "asked"),
    )  # fmt: skip
    yield from patches(
        "execution/dead_man_switch.py", (DEADMAN, UNWATCHED),
        ("a switch in a session of its own", "start_new_session=True,", ""),
        ("no secrets for the switch", "env=_environment(os.environ),", "env=dict(os.environ),"),
        ("a switch that was killed is replaced",
         "            self._start()\n", "            self._pipe or self._start()\n"),
    )  # fmt: skip
    yield from patches(
        "execution/overdue.py", (DEADMAN,),
        ("what starts later is left alone", "started.timestamp() <= before", "True"),
    )  # fmt: skip
    yield from patches(
        "execution/supervisor.py",
        ("tests/execution/test_supervisor.py", "tests/execution/test_watchdog.py", UNWATCHED),
        ("the clock waits for no measurement", "        self.looker.start()\n",
         "        self._look_once = self.meter.look()\n"),
        ("a question at the deadline is told", "            self._note(self._asked)\n",
         "            pass\n"),
        ("the clock waits for no callback", "        self.teller.start()\n",
         "        self._tell_stopping()\n"),
    )  # fmt: skip
    yield from patches(
        "execution/launch.py",
        ("tests/execution/test_supervisor.py", "tests/execution/test_watchdog.py", UNWATCHED),
        ("the switch is told of a deadline", "self.switch.running(self.worker_id, self._late(age))",
         "pass"),
    )  # fmt: skip


def words() -> Iterator[Protection]:
    """Return the protections from text that a worker prints."""
    yield from patches(
        "text/sanitize.py", ("tests/text/test_sanitize.py",),
        ("control characters", '{"Cc", "Cf"', '{"Cf"'),
        ("invisible characters", '"Cf", ', ""),
        ("lone surrogates", '"Cs", ', ""),
        ("line separators", '"Zl", ', ""),
        ("paragraph separators", ', "Zp"', ""),
        ("characters that nobody sees", "ord(character) in _UNSEEN or ", ""),
        ("line ends", 'if character in "\\t\\n\\r":', 'if character in "\\t":'),
        ("length", "clean if len(clean) <= limit else clean[: limit - 1] + ELLIPSIS", "clean"),
    )  # fmt: skip
    yield from patches(
        "execution/output.py", ("tests/execution/test_output.py",),
        ("a record that a worker's progress does not fill", "not (now or since > wait)", "False"),
        ("fewer records the longer it runs", "max(_RECORDED, age * _RECORDED_SHARE)",
         "_RECORDED"),
    )  # fmt: skip
    yield from patches(
        "execution/watchdog.py", ("tests/execution/test_watchdog.py",),
        ("a bounded number of interventions", "self._news(signs, heard_at=heard_at), self._left)",
         "self._news(signs, heard_at=heard_at), None)"),
    )  # fmt: skip
    yield from patches(
        "cli/output/ci.py", ("tests/cli/output/test_ci.py",),
        ("commands for CI systems in a line", '_ANYWHERE.sub(f"#{_MARK}", text)', "text"),
        ("commands for CI systems at a line's start",
         r'_LEADING.sub(rf"\1{_MARK}", _ANYWHERE.sub(f"#{_MARK}", text))',
         '_ANYWHERE.sub(f"#{_MARK}", text)'),
        ("stop-commands around hostile text", "token = secrets.token_hex(_TOKEN_BYTES)\n",
         "return safe\n"),
        ("a token of its own for each block", "secrets.token_hex(_TOKEN_BYTES)", '"0" * 32'),
        ("commands for CI systems in JSON",
         r'return text.replace("##", r"\u0023\u0023")', "return text"),
    )  # fmt: skip
    yield from patches(
        "cli/commands/exec.py", ("tests/cli/output/test_ci.py",),
        ("commands in pieces from a container", r'text.rfind("\n") + 1', "len(text)"),
        ("a container's words in a job", "if self._in_ci:\n            self._show_lines",
         "if False:\n            self._show_lines"),
    )  # fmt: skip
    yield from patches(
        "cli/commands/logs.py", ("tests/cli/output/test_ci.py",),
        ("raw bytes in a job", "if raw and not force and in_ci(os.environ):", "if False:"),
    )  # fmt: skip
    yield from patches(
        "execution/verdict.py",
        ("tests/execution/test_verdict.py",),
        ("what was seen outranks what is claimed",
         "    if seen is not None:\n        return seen\n", ""),
        ("a lost network explains a failure",
         "Verdict(Status.FAILED, Reason.NETWORK_LOST, lost)", "verdict"),
        ("a failed exit is no success", "    if failed and ending.exit_status is not None:\n"
         "        code", "    if False and ending.exit_status is not None:\n        code"),
    )  # fmt: skip


def secrets() -> Iterator[Protection]:
    """Return the protections that keep a secret in memory only."""
    yield from patches(
        "text/redact.py", ("tests/text/test_redact.py",),
        ("values replaced",
         "self._expression.sub(lambda match: self._label(match[0]), data)", "data"),
        ("in base64", "        yield from _base64_forms(piece, before)\n", "        pass\n"),
        ("in base64 anywhere", "for before in range(3):", "for before in range(1):"),
        ("in base64 to the last bit", "for form in {plain, encoded[first:]}:",
         "for form in {plain}:"),
        ("in base64 of URLs", '        yield form.translate(bytes.maketrans(b"+/", b"-_"))\n', ""),
        ("in lines of base64", "            spellings |= set(_lines(encoded, width))\n",
         "            pass\n"),
        ("in hex", "    yield from _hex_forms(piece)\n", ""),
        ("in hex of large letters", "value.hex().encode(), value.hex().upper().encode()",
         "value.hex().encode(), value.hex().encode()"),
        ("in lines of hex", "        spellings |= set(_lines(encoded, _HEX_LINE))\n",
         "        pass\n"),
        ("in URLs", "        yield quoted.encode()\n", ""),
        ("in URLs of small letters",
         '        yield re.sub("%..", lambda code: code[0].lower(), quoted).encode()\n', ""),
        ("in JSON", '        yield escaped.encode("utf-8", "surrogateescape")\n', ""),
        ("in JSON with slashes", '        yield escaped.replace("/", "\\\\/")', '        yield b""'
         '.decode()'),
        ("across chunks", "cut = len(data) - self._undecided(data)", "cut = len(data)"),
        ("the longest first", "sorted(names, key=len, reverse=True)", "sorted(names, key=len)"),
        ("variables that are secret by name", "value if _SECRET_NAME.search(name) else", ""),
        ("passwords in URLs", 'urlsplit(value).password if "://" in value else None', "None"),
    )  # fmt: skip
    made = "the directory is new and the caller's alone: defence in depth"
    yield from patches(
        "state/secret_files.py", ("tests/state/test_secret_files.py",),
        ("in memory alone", "if _is_in_memory(root) and os", "if os"),
        ("in memory: the innermost mount", "len(mount.parts) >= len(best.parts)", "True"),
        ("in memory: where a link leads", "place = directory.resolve()", "place = directory"),
        ("not too long", "if len(value) > MAX_BYTES:", "if False:"),
        ("files are read in part", "opened.read(MAX_BYTES + 1)", "opened.read()"),
        ("not too short", "if max((len(line.strip())", "if False and max((len(line.strip())"),
        ("nobody was there first", "if not _is_ours(directory):", "if False:"),
        ("nobody else's is removed", "    if _is_ours(directory.parent):", "    if True:"),
        ("nobody else's is forgotten", "        if _is_ours(directory):\n            _remove",
         "        if True:\n            _remove"),
        ("nobody else's is believed", "        if _is_ours(directory):\n            try",
         "        if True:\n            try"),
        ("a link is not ours", "stat.S_ISDIR(info.st_mode) and info", "info"),
        ("another's is not ours", " and info.st_uid == os.getuid()", ""),
        ("the run's directory is the caller's", "directory.mkdir(mode=0o700, exist_ok=True)",
         "directory.mkdir(mode=0o755, exist_ok=True)"),
        ("the worker's directory is its own", "    directory.chmod(0o500)\n",
         "    directory.chmod(0o555)\n"),
        ("also while it is filled", "    directory.mkdir(mode=0o700)\n", "    directory.mkdir()\n",
         "the directory around it is closed: defence in depth"),
        ("files are the worker's own", "flags, 0o400)", "flags, 0o444)"),
        ("files are new", "os.O_CREAT | os.O_EXCL | ", "os.O_CREAT | ", made),
        ("files are no links", "os.O_EXCL | os.O_NOFOLLOW", "os.O_EXCL", made),
        ("private values are no links", "os.O_TRUNC | os.O_NOFOLLOW", "os.O_TRUNC", made),
        ("private values are the caller's own", "flags, 0o600)", "flags, 0o644)", made),
        ("files belong to the worker", "            os.fchown(descriptor, *owner)\n", ""),
        ("their directory, too", "    os.chown(directory, *owner)\n", ""),
        ("removed whatever happens", "                _withdraw(directory)\n",
         "                pass\n"),
    )  # fmt: skip
    yield from patches(
        "worker/container_specs.py worker/pack.py",
        ("tests/runs/test_secrets.py", "tests/system/test_secrets.py"),
        ("read-only to the worker", "target=secret_files.TARGET, read_only=True",
         "target=secret_files.TARGET, read_only=False"),
    )  # fmt: skip
    yield from patches(
        "worker/harvest_request.py",
        ("tests/runs/test_secrets.py", "tests/system/test_secrets.py"),
        ("out of a commit's message", "one_line(self.redactor.text(self.spec.task), limit=500)",
         "one_line(self.spec.task, limit=500)"),
    )  # fmt: skip


def triggers() -> Iterator[Protection]:
    """Return the protections of alerts and notifications from a worker's output."""
    tests = ("tests/execution/test_watchdog.py",)
    yield from patches(
        "execution/watchdog.py", tests,
        ("few kinds of errors remembered", "if len(self._kinds) > _KINDS:", "if False:"),
        ("a line without end not kept",
         'self._started[stream] = text[text.rfind(b"\\n") + 1 :][:_LINE]',
         'self._started[stream] = text[text.rfind(b"\\n") + 1 :]'),
        ("few lines of a chunk looked at", "for _ in range(_LINES):", "while True:"),
        ("a repeated line made harmless",
         'one_line(line.decode("utf-8", "replace"), limit=120)', 'line.decode("utf-8", "replace")'),
        ("a prompt made harmless",
         'one_line(last.decode("utf-8", "replace"), limit=_LINE)',
         'last.decode("utf-8", "replace")'),
        ("names of files made harmless",
         "one_line(path, limit=60) for path in strayed", "path for path in strayed"),
        ("few files looked at", "most=_MOST_FILES", "most=10**9"),
    )  # fmt: skip
    yield from patches(
        "runs/notifications.py", ("tests/runs/test_notifications.py",),
        ("no shell", "shlex.split(command),", '["sh", "-c", command],'),
        ("a command that hangs is ended", "        timeout=_TIMEOUT,\n        check=False,",
         "        check=False,"),
        ("a server that hangs is left", "urlopen(request, timeout=_TIMEOUT)", "urlopen(request)"),
        ("the end waits for none that hangs",
         "self._thread.join(_LAST)", "self._thread.join()"),
        ("no words of the target's", "return type(error).__name__", "return str(error)"),
    )  # fmt: skip


def caches() -> Iterator[Protection]:
    """Return the protections of caches from other workers."""
    tests = ("tests/workspace/test_caches.py", "tests/system/test_caches_offline.py")
    yield from patches(
        "workspace/caches.py", tests,
        ("a copy of its own",
         "_copy(lower, place, user)\n        return BindMount(source=place",
         "_copy(lower, place, user)\n        return BindMount(source=lower"),
        ("a layer of its own",
         "return OverlayMount(lower=lower, upper=upper, work=work, target=target)",
         "return BindMount(source=lower, target=target, read_only=False)"),
        ("links are copied as links", "symlinks=True", "symlinks=False"),
        ("nobody else writes to them", "mode=0o700, ", ""),
        ("nothing special is published", "elif not stat.S_ISLNK(mode):", "elif False:"),
        ("links are not followed", "mode = path.lstat().st_mode", "mode = path.stat().st_mode"),
        ("kept while a run goes on", "if any(run.is_live()", "if False and any(run.is_live()"),
    )  # fmt: skip
    yield from patches(
        "worker/lifecycle.py", tests,
        ("published when all went well",
         "not run.caches.warms or verdict.status is not Status.SUCCESS", "not run.caches.warms"),
    )  # fmt: skip
    yield from patches(
        "worker/checks.py", tests,
        ("not the worker's own for checks", 'mode="bind", caches=caches, ', 'mode="bind", '),
    )  # fmt: skip
    yield from patches(
        "workspace/mounts.py",
        tests,
        ("counted by the disk limit", "self.store.git, *_growing(self.caches)", "self.store.git"),
        ("gone with the scratch", "remove_tree(self.store.root / CACHES)", "pass"),
    )  # fmt: skip
