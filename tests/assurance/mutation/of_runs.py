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
        ("`.git` pointer read-only", 'target=f"{WORKSPACE}/.git", read_only=True',
         'target=f"{WORKSPACE}/.git", read_only=False'),
        ("base's objects read-only",
         "target=OBJECTS, read_only=True", "target=OBJECTS, read_only=False"),
        ("read-only store", "target=STORE, read_only=self.read_only",
         "target=STORE, read_only=False"),
        ("read-only checkout", "target=WORKSPACE, read_only=self.read_only",
         "target=WORKSPACE, read_only=False"),
        ("read-only worktree", "            read_only=self.read_only,\n        )", "        )"),
    )  # fmt: skip
    confined = ("tests/workspace/test_confined.py", "tests/system/test_enforced_paths.py")
    yield from patches(
        "workspace/mounts.py", confined,
        ("worktree read-only outside the paths (overlay)",
         "target=WORKSPACE,\n            read_only=True,\n        )\n        return whole_view",
         "target=WORKSPACE,\n        )\n        return whole_view"),
        ("worktree read-only outside the paths (bind)",
         "source=self.store.copy, target=WORKSPACE, read_only=True",
         "source=self.store.copy, target=WORKSPACE, read_only=False"),
        ("partial overlays record no paths of the whole tree",
         "redirects=False,", "redirects=True,"),
        ("overlay work directories of root are emptied", "            *self._swept(),\n", ""),
    )  # fmt: skip
    yield from patches(
        "workspace/confined.py", confined,
        ("mount points are not created through links",
         "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW",
         "os.O_RDONLY | os.O_DIRECTORY"),
        ("file at the path of a directory is refused", "entry and not entry.startswith(_TREE)",
         "False and entry"),
        ("`enforce: ro` refused with submodules", "entry.startswith(_GITLINK)", "False"),
        ("`enforce: ro` refused with a dotenv file outside the paths",
         "if dotenv is not None and not any(",
         "if False and not any("),
        ("`enforce: ro` refused without paths", "if not config.triggers.paths:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "text/path_patterns.py", confined,
        ("paths with overlay option characters are refused",
         "not _UNMOUNTABLE.isdisjoint(text)", "False"),
        ("wildcards are refused as directories", "why is None and is_wild(text)", "False"),
    )  # fmt: skip
    yield from patches(
        "worker/prepare.py", confined,
        ("mount points are created without following links",
         "    workspace.confine()\n", "    pass\n"),
        ("confinement is passed to the mounts",
         "        confined_to=confined_to(worker.config),\n        caches", "        caches"),
    )  # fmt: skip
    yield from patches(
        "files/remove_tree.py",
        ("tests/files/test_remove_tree.py",),
        ("removal does not follow links", "if not stat.S_ISDIR(entry.lstat().st_mode):",
         "if not stat.S_ISDIR(entry.stat().st_mode):"),
        ("removal does not follow links below the top",
         "if not child.is_dir(follow_symlinks=False):",
         "if not child.is_dir():", "defence in depth: moved entries are checked again"),
        ("removal does not start at a link", "if path.is_symlink():", "if False:"),
        ("removal at any depth", "path.rename(next(spare))", "_remove_entry(path, spare, 0)"),
        ("locked directories are removed",
         "            directory.chmod(0o700)\n", "            pass\n"),
    )  # fmt: skip
    yield from patches(
        "git/object_packs.py git/reached_objects.py", ("tests/workspace/test_private_git.py", RUNS),
        ("worker gets only the base's objects", '"--use-bitmap-index", newest, ',
         '"--all", '),
        ("objects not writable", "path.chmod(0o444)",
         "(Path(folder) / name).chmod(0o666)"),
    )  # fmt: skip
    yield from patches(
        "workspace/copy_untracked.py",
        ("tests/workspace/test_copy_untracked.py",),
        ("copies do not follow links", "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW",
         "os.O_RDONLY | os.O_DIRECTORY"),
    )  # fmt: skip
    yield from patches(
        "workspace/untracked.py", ("tests/workspace/test_copy_untracked.py",),
        ("possible secrets are copied only if named", "    _refuse_secrets(asked, patterns)\n", ""),
        ("links out of the repository not copied", "_leads_out(top, path):", "False:"),
    )  # fmt: skip
    yield from patches(
        "git/lfs.py", ("tests/git/test_lfs.py",),
        ("LFS objects must match their hash", ".hexdigest() == oid\n", ".hexdigest() != \"\"\n"),
        ("total size of LFS objects limited", "if size > room:", "if False:"),
        ("LFS content requires more than its hash", " if pointer.oid in known)", ")"),
    )  # fmt: skip
    yield from patches(
        "workspace/worker_user.py", ("tests/workspace/test_private_git.py",),
        ("worker is never root", "if os.getuid() == 0:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "workspace/shared_checkout.py", ("tests/workspace/test_shared_checkout.py",),
        ("changed checkout is not shared", "if not c.exists() or is_intact(c)", "if True"),
        ("change times of a shared checkout are compared", "(info.st_mtime_ns, info.st_ctime_ns)",
         "(info.st_mtime_ns, 0)"),
        ("owners of a shared checkout are compared",
         "info.st_ino, info.st_uid, info.st_gid,", "info.st_ino, 0, 0,",
         "defence in depth: a change of owner also changes the change time"),
        ("index of a shared checkout is compared",
         'hashlib.sha256((worktree.git_dir / "index").read_bytes())',
         "hashlib.sha256()"),
        ("checkouts are shared only with equal settings", '        "settings": settings,\n', ""),
        ("checkouts are shared only with equal attributes",
         '        repository.common_dir / "info" / "attributes",\n', ""),
        ("checkout in use is kept", "and path.name not in used", ""),
        ("incomplete checkout is not shared", "    remove_tree(half)\n", ""),
    )  # fmt: skip
    yield from patches(
        "git/private_place.py",
        ("tests/workspace/test_shared_checkout.py", "tests/git/test_shared_packs.py"),
        ("shared checkouts are private to the caller", "or info.st_mode & 0o077", ""),
        (
            "link in place of shared checkouts is not followed",
            "os.O_DIRECTORY | os.O_NOFOLLOW",
            "os.O_DIRECTORY",
        ),
        (
            "link in place of the lock of shared checkouts is not followed",
            "os.O_CREAT | os.O_NOFOLLOW",
            "os.O_CREAT",
        ),
    )
    yield from patches(
        "git/shared_packs.py git/object_packs.py git/pack_files.py git/reached_objects.py",
        ("tests/git/test_shared_packs.py",),
        ("packs are shared only with descendants of their base",
         "older in commits if older in known), None)",
         "older in commits if older in known), next(iter(known)))"),
        ("packs are shared only with an equally shallow history", "if manifest.cut == cut", ""),
        ("packs are shared only with a manifest", "except (OSError, ValidationError):",
         "except ZeroDivisionError:"),
        ("manifest of shared packs names no other files",
         'PackFile = Annotated[str, StringConstraints(pattern='
         'r"^pack-[0-9a-f]{40,64}\\.(?:pack|idx|rev)$")]', "PackFile = str"),
        ("sizes of shared packs are compared", "path.stat().st_size != size or not", "not"),
        ("shared packs end with the checksum of their index",
         "return file.read() == index.read(checksum)", "return True"),
        ("links among shared packs are not followed", "    with open_regular(file) as source:",
         '    with file.open("rb") as source:'),
        ("link in place of shared packs is not followed",
         "if path.is_dir() and not path.is_symlink()]\n    for", "if path.is_dir()]\n    for"),
        ("layers of a later commit are not shared", "tuple(layers[:number])", "tuple(layers)"),
        ("incomplete shared packs are not completed", "        remove_tree(half)\n", ""),
        ("pack of the repository holds nothing else",
         "alone = reached - others == held", "alone = True"),
        ("objects that are listed twice are counted once", "    if len(parts) == 1:\n"
         "        return sum(1 for _ in parts[0].lines())",
         "    if parts:\n        return sum(1 for part in parts for _ in part.lines())"),
        ("pack of the repository is undamaged",
         "return file.read() == digest.digest() and", "return"),
        ("mode of a pack of the user is kept", "if path.stat().st_mode & 0o444 != 0o444:",
         "if True:"),
        ("pack that not all may read is copied",
         "if os.fstat(source.fileno()).st_mode & _ALL_READ == _ALL_READ:", "if True:"),
    )  # fmt: skip
    yield from patches(
        "worker/prepare.py workspace/mounts.py",
        ("tests/system/test_shared_checkouts.py -k overlay",),
        ("no file is added to a shared checkout",
         "if not extras.are_none or confined_to(worker.config):", "if False:"),
        ("owner of a shared checkout is not changed",
         "        if self.is_shared:\n            return\n", ""),
    )  # fmt: skip
    yield from patches(
        "workflow/model.py", ("tests/state/test_run_record.py",),
        ("limits of a run hold for tasks of a recorded workflow",
         "exclude_unset=True", "exclude_unset=False"),
    )  # fmt: skip
    yield from patches(
        "files/change_owner.py", ("tests/files/test_change_owner.py",),
        ("change of owner with `chown` does not follow links", '"-h", "-R", "-P"', '"-R", "-L"'),
        ("change of owner of few files does not follow links",
         "in found:\n            os.chown(path, *owner, follow_symlinks=False)",
         "in found:\n            os.chown(path, *owner)"),
        ("change of owner in Python does not follow links",
         "dir_fd=descriptor, follow_symlinks=False)", "dir_fd=descriptor)"),
        ("worktree's top stays the caller's", ' if path.name != ".git"', ""),
    )  # fmt: skip
    yield from patches(
        "git/submodules.py", ("tests/git/test_submodules.py",),
        ("submodule names cannot lead out of `modules`", ' and _is_usable(name):', ":"),
    )  # fmt: skip
    yield from patches(
        "workspace/private_git.py",
        ("tests/workspace/test_private_git.py", "tests/worker/test_harvest.py", RUNS),
        ("no automatic garbage collection in the store",
         "[gc]\n\\tauto = 0\n[maintenance]\n\\tauto = false\n", ""),
        ("newlines in settings are replaced", '.replace("\\n", " ")', ""),
        ("filters disabled in a worker's checkout",
         '        index=store.root / "index",\n        config=repository.without_filters(),\n',
         '        index=store.root / "index",\n'),
    )  # fmt: skip
    yield from patches(
        "git/checkout.py git/worktree.py",
        ("tests/git/test_worktree.py", "tests/git/test_disarm.py", RUNS,
         f"{ACCEPTANCE} -k filters"),
        ("filters disabled for the checkout",
         "config = {**repository.without_filters(), **repository.settings(_SPARSE)}",
         "config = repository.settings(_SPARSE)"),
        ("filters disabled for the update",
         "owner, config = owner_elsewhere(self.path), repository.without_filters()",
         "owner, config = owner_elsewhere(self.path), {}"),
        ("programs of the tree disabled in the worktree",
         "keep_off(repository, worktree.path, worktree.git_dir)\n",
         "pass\n"),
        ("index locked by the user's git is left alone",
         'lock.open("xb")', 'lock.open("wb")'),
        ("no file is assumed unchanged", '"--no-assume-unchanged", ', '"--refresh", '),
        ("files as new as the index are compared", "        shutil.copystat(index, lock)\n", ""),
        ("index of the worktree belongs to the caller",
         "self._give_index(creator or (0, 0))\n", "pass\n"),
        ("user's changes are not overwritten", '"read-tree", "-m", "-u"',
         '"read-tree", "--reset", "-u"'),
    )  # fmt: skip


def limits() -> Iterator[Protection]:
    """Return the protections that end a worker."""
    ends = (LIMITS, RUNS, f"{ACCEPTANCE} -k disk_log_inodes")
    yield from patches(
        "execution/limits.py", ends,
        ("disk limit", "if written > limits.disk:", "if False:"),
        ("limit on the number of files", "elif made > limits.inodes:", "elif False:"),
    )  # fmt: skip
    yield from patches(
        "execution/limits.py", (LIMITS, "tests/assurance/attacks/test_limits.py"),
        ("unreadable directories stop the worker",
         "elif self._locked * _MEASURE_DISK > _PATIENCE * MEASURE:",
         "elif False:"),
        ("fork bombs are stopped", "if self._at_pids_limit >= _PATIENCE:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "execution/supervisor.py",
        ends,
        ("log limit", "if self.log.size > limits.log_limit:", "if False:"),
        ("silent workers are stopped", "if limits.idle_timeout and", "if False and"),
        ("deadline", "if uptime() >= deadline:", "if False:"),
        ("budget", "if terms.budget is not None and", "if False and"),
        ("SIGKILL after grace", '        self.container.kill("SIGKILL")\n', ""),
    )  # fmt: skip
    yield from patches(
        "execution/launch.py",
        ("tests/scheduling/test_scheduler.py",),
        ("container that fails to start is removed", "        container.remove()\n        raise",
         "        raise"),
    )  # fmt: skip
    yield from patches(
        "worker/agent_container.py",
        ("tests/scheduling/test_scheduler.py", "tests/runs/test_runner.py"),
        ("ended container is removed", "        problem = _remove(running.container)\n",
         "        problem = None\n"),
        ("container is removed after any error",
         "            _remove(running.container)\n            dismiss(worker)\n", ""),
    )  # fmt: skip
    yield from patches(
        "execution/output.py", ("tests/execution/test_output.py", "tests/runs/test_secrets.py"),
        ("log on disk limited", "kept = data[: self._room]", "kept = data"),
        ("length of lines limited", "(started + tail)[:_LINE]", "started + tail"),
        ("lines are sanitised", 'line = output_line(raw[:4000].decode("utf-8", "replace").strip())',
         'line = raw[:4000].decode("utf-8", "replace").strip()'),
        ("secrets are redacted from the log",
         "self._redacted[chunk.stream].feed(chunk.data)", "chunk.data"),
        ("secrets at the end of the log are redacted", "self._take(stream, redacted.flush())",
         "self._take(stream, redacted._held)"),
    )  # fmt: skip
    yield from patches(
        "files/disk_usage.py", (LIMITS, "tests/files/test_walk.py", RUNS),
        ("time of measurements limited", "- files, until=until)", "- files, until=math.inf)"),
        ("hard links count once",
         "if info.st_nlink == 1 or info.st_ino not in linked:", "if True:"),
    )  # fmt: skip
    yield from patches(
        "files/walk.py", ("tests/files/test_walk.py", LIMITS),
        ("walks do not follow links", "os.O_NOFOLLOW | ", ""),
        ("walks use `lstat`", "entry.stat(follow_symlinks=False)", "entry.stat()"),
        ("walks open directories by descriptor", "os.open(name, _DIRECTORY, dir_fd=self._end())",
         'os.open(f"/proc/self/fd/{self._kept[0]}/{path}", _DIRECTORY)'),
        ("walks do not enter other file systems", "and info.st_dev == device:", "and True:"),
        ("walks have a timeout", "time.monotonic() >= self._until", "False"),
        ("number of open descriptors of a walk limited", "len(self._kept) <= _OPEN:", "True:"),
        ("vanished entries do not end a walk", "            except FileNotFoundError:\n"
         "                continue\n            except OSError:\n                self.hidden += 1\n"
         "                return",
         "            except OSError:\n                self.hidden += 1\n                return"),
    )  # fmt: skip
    yield from patches(
        "execution/dead_man_process.py", (DEADMAN, UNWATCHED),
        ("overdue containers are killed", "if at_once or self._moment(worker) <= now",
         "if at_once"),
        ("attempts to kill become rare", "if not late or now < self._not_before or self.is_done:",
         "if not late or self.is_done:"),
        ("services of a dead run are killed", "        for worker in self._idle:\n"
         "            self._running[worker] = uptime() + RESUME\n", ""),
        ("switch ends when a resumed run takes over", "or self._is_replaced)", "or False)"),
        ("switch ends only for a resumed run's switch", "        if self._mark is None:\n"
         "            self._mark = self._sign()\n", ""),
        ("containers of a lost run are killed at once", "switch.is_lost or (asked", "(asked"),
        ("failed kill is repeated", "return done\n", "return True\n"),
        ("signal after the process's death kills at once", "(asked and switch.alone)", "False"),
        ("a signal ends no run", "(asked and switch.alone)", "asked"),
    )  # fmt: skip
    yield from patches(
        "execution/dead_man_switch.py", (DEADMAN, UNWATCHED),
        ("switch has its own session", "start_new_session=True,", ""),
        ("switch gets no secrets", "env=_environment(os.environ),", "env=dict(os.environ),"),
        ("killed switch is replaced",
         "            self._start()\n", "            self._pipe or self._start()\n"),
    )  # fmt: skip
    yield from patches(
        "execution/overdue.py", (DEADMAN,),
        ("later containers are left alone", "started.timestamp() <= before", "True"),
    )  # fmt: skip
    yield from patches(
        "execution/supervisor.py",
        ("tests/execution/test_supervisor.py", "tests/execution/test_watchdog.py", UNWATCHED),
        ("deadline does not wait for measurements", "        self.looker.start()\n",
         "        self._look_once = self.meter.look()\n"),
        ("question at the deadline is reported", "            self._note(self._asked)\n",
         "            pass\n"),
        ("deadline does not wait for callbacks", "        self.teller.start()\n",
         "        self._tell_stopping()\n"),
    )  # fmt: skip
    yield from patches(
        "execution/launch.py",
        ("tests/execution/test_supervisor.py", "tests/execution/test_watchdog.py", UNWATCHED),
        ("switch gets every deadline", "self.switch.running(self.worker_id, self._late(age))",
         "pass"),
    )  # fmt: skip


def words() -> Iterator[Protection]:
    """Return the protections from text that a worker prints."""
    yield from patches(
        "text/sanitize.py", ("tests/text/test_sanitize.py",),
        ("control characters are replaced", '{"Cc", "Cf"', '{"Cf"'),
        ("format characters are replaced", '"Cf", ', ""),
        ("lone surrogates are replaced", '"Cs", ', ""),
        ("line separators are replaced", '"Zl", ', ""),
        ("paragraph separators are replaced", ', "Zp"', ""),
        ("invisible letters are replaced", "ord(character) in _UNSEEN or ", ""),
        ("line ends are normalised", 'if character in "\\t\\n\\r":', 'if character in "\\t":'),
        ("length of lines limited",
         "clean if len(clean) <= limit else clean[: limit - 1] + ELLIPSIS", "clean"),
    )  # fmt: skip
    yield from patches(
        "execution/output.py", ("tests/execution/test_output.py",),
        ("rate of recorded progress limited", "not (now or since > wait)", "False"),
        ("rate of recorded progress falls with time", "max(_RECORDED, age * _RECORDED_SHARE)",
         "_RECORDED"),
    )  # fmt: skip
    yield from patches(
        "execution/watchdog.py", ("tests/execution/test_watchdog.py",),
        ("number of interventions limited", "self._news(signs, heard_at=heard_at), self._left)",
         "self._news(signs, heard_at=heard_at), None)"),
    )  # fmt: skip
    yield from patches(
        "cli/output/ci.py", ("tests/cli/commands/test_conflicts.py",),
        ("a file that receives stdout and stderr of a job is its log",
         " or os.path.samestat(info, os.fstat(2))", ""),
    )  # fmt: skip
    yield from patches(
        "cli/output/ci.py", ("tests/cli/output/test_ci.py",),
        ("CI commands within a line are broken up", '_ANYWHERE.sub(f"#{_MARK}", text)', "text"),
        ("CI commands at a line's start are broken up",
         r'_LEADING.sub(rf"\1{_MARK}", _ANYWHERE.sub(f"#{_MARK}", text))',
         '_ANYWHERE.sub(f"#{_MARK}", text)'),
        ("`stop-commands` encloses hostile text", "token = secrets.token_hex(_TOKEN_BYTES)\n",
         "return safe\n"),
        ("each block has its own token", "secrets.token_hex(_TOKEN_BYTES)", '"0" * 32'),
        ("CI commands in JSON are escaped",
         r'return text.replace("##", r"\u0023\u0023")', "return text"),
    )  # fmt: skip
    yield from patches(
        "cli/commands/exec.py", ("tests/cli/output/test_ci.py",),
        ("CI commands in several chunks are broken up", r'text.rfind("\n") + 1', "len(text)"),
        ("output of `exec` is cleaned in a job", "if self._in_ci:\n            self._show_lines",
         "if False:\n            self._show_lines"),
    )  # fmt: skip
    yield from patches(
        "cli/commands/logs.py", ("tests/cli/output/test_ci.py",),
        ("`logs --raw` refused in a job",
         "if raw and not force and in_ci(os.environ):", "if False:"),
    )  # fmt: skip
    yield from patches(
        "execution/verdict.py",
        ("tests/execution/test_verdict.py",),
        ("observations override the agent's report",
         "    if seen is not None:\n        return seen\n", ""),
        ("a lost network explains a failure",
         "Verdict(Status.FAILED, Reason.NETWORK_LOST, lost)", "verdict"),
        ("non-zero exit code is no success", "    if failed and ending.exit_status is not None:\n"
         "        code", "    if False and ending.exit_status is not None:\n        code"),
    )  # fmt: skip


def secrets() -> Iterator[Protection]:
    """Return the protections that keep a secret in memory only."""
    yield from patches(
        "text/redact.py", ("tests/text/test_redact.py",),
        ("values are redacted",
         "self._expression.sub(lambda match: self._label(match[0]), data)", "data"),
        ("values between escape sequences are redacted",
         "[_WithoutSequences(data)] if self._names and _ESCAPE in data else []", "[]"),
        ("values in base64 are redacted",
         "        yield from _base64_forms(piece, before)\n", "        pass\n"),
        ("values at any base64 offset are redacted",
         "for before in range(3):", "for before in range(1):"),
        ("last base64 character is redacted", "for form in {plain, encoded[first:]}:",
         "for form in {plain}:"),
        ("values in URL-safe base64 are redacted",
         '        yield form.translate(bytes.maketrans(b"+/", b"-_"))\n', ""),
        ("values in wrapped base64 are redacted",
         "            spellings |= set(_lines(encoded, width))\n",
         "            pass\n"),
        ("values in hex are redacted", "    yield from _hex_forms(piece)\n", ""),
        ("values in upper-case hex are redacted",
         "value.hex().encode(), value.hex().upper().encode()",
         "value.hex().encode(), value.hex().encode()"),
        ("values in wrapped hex are redacted",
         "        spellings |= set(_lines(encoded, _HEX_LINE))\n",
         "        pass\n"),
        ("URL-encoded values are redacted", "        yield quoted.encode()\n", ""),
        ("lower-case URL-encoded values are redacted",
         '        yield re.sub("%..", lambda code: code[0].lower(), quoted).encode()\n', ""),
        ("JSON-escaped values are redacted",
         '        yield escaped.encode("utf-8", "surrogateescape")\n', ""),
        ("JSON with escaped slashes is redacted",
         '        yield escaped.replace("/", "\\\\/")', '        yield b""'
         '.decode()'),
        ("values across chunks are redacted",
         "cut = min([len(data) - self._count_undecided(data), *map(self._begun, views)])",
         "cut = len(data)"),
        ("longest value is redacted first",
         "sorted(names, key=len, reverse=True)", "sorted(names, key=len)"),
        ("variables with secret names are redacted", "value if _SECRET_NAME.search(name) else", ""),
        ("passwords in URLs are redacted",
         'urlsplit(value).password if "://" in value else None', "None"),
    )  # fmt: skip
    yield from patches(
        "machine.py", ("tests/state/test_secret_files.py",),
        ("in memory: innermost mount decides", "len(mount.parts) >= len(best.parts)", "True"),
        ("in memory: links are resolved", "place = directory.resolve()", "place = directory"),
    )  # fmt: skip
    made = "defence in depth: the directory is new and private to the caller"
    yield from patches(
        "state/secret_files.py", ("tests/state/test_secret_files.py",),
        ("secrets are in memory only", "if is_in_memory(root) and os", "if os"),
        ("long secrets refused", "if len(value) > MAX_BYTES:", "if False:"),
        ("length of read secret files limited", "opened.read(MAX_BYTES + 1)", "opened.read()"),
        ("short secrets refused",
         "if max((len(line.strip())", "if False and max((len(line.strip())"),
        ("existing directory of another user refused", "if not _is_ours(directory):", "if False:"),
        ("another user's directory is not removed",
         "    if _is_ours(directory.parent):", "    if True:"),
        ("another user's directory is not forgotten",
         "        if _is_ours(directory):\n            _remove",
         "        if True:\n            _remove"),
        ("another user's private values are not read",
         "        if _is_ours(directory):\n            try",
         "        if True:\n            try"),
        ("linked directory refused", "stat.S_ISDIR(info.st_mode) and info", "info"),
        ("directory of another owner refused", " and info.st_uid == os.getuid()", ""),
        ("run's directory is private to the caller", "directory.mkdir(mode=0o700, exist_ok=True)",
         "directory.mkdir(mode=0o755, exist_ok=True)"),
        ("worker's directory is private to the worker", "    directory.chmod(0o500)\n",
         "    directory.chmod(0o555)\n"),
        ("worker's directory is private while it is written",
         "    directory.mkdir(mode=0o700)\n", "    directory.mkdir()\n",
         "defence in depth: the parent directory is private"),
        ("secret files are private to the worker", "flags, 0o400)", "flags, 0o444)"),
        ("secret files are newly created", "os.O_CREAT | os.O_EXCL | ", "os.O_CREAT | ", made),
        ("secret files do not follow links", "os.O_EXCL | os.O_NOFOLLOW", "os.O_EXCL", made),
        ("secret files belong to the worker", "            os.fchown(descriptor, *owner)\n", ""),
        ("secret directory belongs to the worker", "    os.chown(directory, *owner)\n", ""),
        ("secrets are removed after any error", "                _withdraw(directory)\n",
         "                pass\n"),
    )  # fmt: skip
    yield from patches(
        "worker/container_specs.py worker/pack.py",
        ("tests/runs/test_secrets.py", "tests/system/test_secrets.py"),
        ("secrets mounted read-only", "target=secret_files.TARGET, read_only=True",
         "target=secret_files.TARGET, read_only=False"),
    )  # fmt: skip
    yield from patches(
        "worker/harvest_request.py",
        ("tests/runs/test_secrets.py", "tests/system/test_secrets.py"),
        ("secrets are redacted from commit messages",
         "one_line(self.redactor.text(self.spec.task), limit=500)",
         "one_line(self.spec.task, limit=500)"),
    )  # fmt: skip


def triggers() -> Iterator[Protection]:
    """Return the protections of alerts and notifications from a worker's output."""
    tests = ("tests/execution/test_watchdog.py",)
    yield from patches(
        "execution/watchdog.py", tests,
        ("number of remembered error lines limited", "if len(self._kinds) > _KINDS:", "if False:"),
        ("stored part of a long line limited",
         'self._started[stream] = text[text.rfind(b"\\n") + 1 :][:_LINE]',
         'self._started[stream] = text[text.rfind(b"\\n") + 1 :]'),
        ("number of inspected lines limited", "for _ in range(_LINES):", "while True:"),
        ("repeated line is sanitised",
         'output_line(line.decode("utf-8", "replace"), limit=120)',
         'line.decode("utf-8", "replace")'),
        ("prompt is sanitised",
         'output_line(last.decode("utf-8", "replace"), limit=_LINE)',
         'last.decode("utf-8", "replace")'),
        ("file names are sanitised",
         "one_line(path, limit=60) for path in strayed", "path for path in strayed"),
        ("number of inspected files limited", "most=_MOST_FILES", "most=10**9"),
    )  # fmt: skip
    yield from patches(
        "runs/notifications.py", ("tests/runs/test_notifications.py",),
        ("notification command runs without a shell",
         "_run(shlex.split(target), message)", '_run(["sh", "-c", target], message)'),
        ("hanging notification command is killed",
         "        timeout=_TIMEOUT,\n        check=False,",
         "        check=False,"),
        ("run's end does not wait for hanging notifications",
         "self._thread.join(_LAST)", "self._thread.join()"),
        ("target's output is not shown", "return type(error).__name__", "return str(error)"),
    )  # fmt: skip
    yield from patches(
        "runs/webhooks.py", ("tests/runs/test_notifications.py",),
        ("hanging server times out", "urlopen(request, timeout=TIMEOUT)", "urlopen(request)"),
    )  # fmt: skip


def caches() -> Iterator[Protection]:
    """Return the protections of caches from other workers, and of runs from other users."""
    yield from patches(
        "state/public_record.py cleanup/remove.py files/shared.py git/repository.py",
        ("tests/system/test_users.py",),
        ("users: a run that cannot be read is somebody else's",
         "if os.access(self._directory, os.R_OK | os.X_OK):", "if True:"),
        ("users: a run of another user is live while its process is",
         "        if process == _NONE:\n            return False\n", "        return False\n"),
        ("users: cleanups name the runs of others",
         "    if (user := run.other_user) is not None:\n", "    if (user := None) is not None:\n"),
        ("users: root's git writes as the owner of the repository",
         "self.owner = owner_elsewhere(self.common_dir)", "self.owner = None"),
    )  # fmt: skip
    tests = ("tests/workspace/test_caches.py", "tests/system/test_caches_offline.py")
    yield from patches(
        "workspace/caches.py", tests,
        ("each worker has its own copy",
         "return BindMount(source=_copied(lower, place, user), target=target",
         "return BindMount(source=lower, target=target"),
        ("each worker has its own layer",
         "return OverlayMount(lower=lower, upper=upper, work=work, target=target)",
         "return BindMount(source=lower, target=target, read_only=False)"),
        ("a cache belongs to the worker's user", "if lower.stat().st_uid != user[0]:",
         "if False:"),
        ("an empty cache replaces no other", "if not any(_has_packages(", "if False and not any(("),
        ("links are copied as links", "symlinks=True", "symlinks=False"),
        ("caches are not writable for others", "mode=0o700, ", ""),
        ("special files are not published", "elif not stat.S_ISLNK(mode):", "elif False:"),
        ("publishing does not follow links",
         "mode = path.lstat().st_mode", "mode = path.stat().st_mode"),
        ("caches of live runs are kept", "run.other_user is None and run.is_live()", "False"),
    )  # fmt: skip
    yield from patches(
        "workspace/artifacts.py", ("tests/workspace/test_artifacts.py",),
        ("no link or special file is copied",
         "if stat.S_ISREG(info.st_mode):\n                folder",
         "if not stat.S_ISDIR(info.st_mode):\n                folder"),
        ("a copy replaces nothing", "os.O_CREAT | os.O_EXCL", "os.O_CREAT"),
        ("no artifact is a part of a git repository", "elif entry.name.lower() in of_git:",
         "elif False:"),
        ("no part of a git repository is copied",
         "if _is_of_git(root / ARTIFACTS / path, path):", "if False:"),
        ("bare repositories are recognised", "if is_git else", "if False else"),
    )  # fmt: skip
    yield from patches(
        "reports/worker_tests.py", ("tests/reports/test_worker_tests.py",),
        ("size of a JUnit file limited", "if len(data) > _MOST_BYTES:", "if False:"),
        ("number of tests limited", "if self.room.cases <= 0:", "if False:"),
        ("size of all JUnit files limited", "if left < 0:", "if False:"),
        ("size of the tests' texts limited", "part = text[: min(most, self.text)]",
         "part = text[:most]"),
        ("odd encodings are named", "expat.ExpatError, LookupError, ValueError)",
         "expat.ExpatError, LookupError)"),
        ("depth of a JUnit file limited", "if len(self._open) > _DEEPEST:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "worker/lifecycle.py", tests,
        ("caches are published only after success",
         "not run.caches.warms or verdict.status is not Status.SUCCESS", "not run.caches.warms"),
    )  # fmt: skip
    yield from patches(
        "worker/checks.py", tests,
        ("checks do not see the worker's cache changes",
         'mode="bind", caches=caches, ', 'mode="bind", '),
    )  # fmt: skip
    yield from patches(
        "workspace/mounts.py",
        tests,
        ("cache layers count against the disk limit",
         "self.store.git, *_growing(self.caches)", "self.store.git"),
        ("cache layers are removed after the run", "remove_tree(self.store.root / CACHES)", "pass"),
    )  # fmt: skip
