"""Protections of a run: limits of workers, secrets of the caller, and no lost work."""

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

RUNS = "tests/runs/test_runner.py tests/runs/test_repositories.py"
LIMITS = "tests/sandbox/supervision/test_limits.py"
DEADMAN = "tests/sandbox/test_dead_man_switch.py"
UNWATCHED = "tests/system/test_dead_man_switch.py"
ACCEPTANCE = "tests/system/test_acceptance.py"
CLEANUP = "tests/runs/cleanup/test_remove.py"


def workspace() -> Iterator[Protection]:
    """Return the protections of a worker's view of the host."""
    yield from marked(
        ("tests/engine/test_host_place.py",),
        ("step mounts only its parts", Without("step in part.seen_by")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_private_git.py",),
        ("`.git` pointer read-only", Give("read_only=False")),
        ("base's objects read-only", Give("read_only=False")),
        ("read-only store", Give("read_only=False")),
        ("read-only checkout", Give("read_only=bool(confined)")),
        ("read-only worktree", Give("read_only=bool(confined)")),
    )  # fmt: skip
    confined = ("tests/worker/workspace/test_confined.py", "tests/system/test_enforced_paths.py")
    yield from marked(
        confined,
        ("worktree read-only outside the paths (overlay)", Give("read_only=self.read_only")),
        ("worktree read-only outside the paths (bind)", Give("read_only=self.read_only")),
        ("partial overlays record no paths of the whole tree", Give("redirects=True")),
        ("overlay work directories of root are emptied", Remove()),
    )  # fmt: skip
    yield from marked(
        confined,
        ("mount points are not created through links", Without("os.O_NOFOLLOW")),
        ("file at the path of a directory is refused", Never()),
        ("`enforce: ro` refused with submodules", Never("entry.startswith(_GITLINK)")),
        ("`enforce: ro` refused with a dotenv file outside the paths", Never("dotenv is not None")),
        ("`enforce: ro` refused without paths", Never()),
    )  # fmt: skip
    yield from marked(
        confined,
        ("paths with overlay option characters are refused",
         Never("not _UNMOUNTABLE.isdisjoint(text)")),
        ("wildcards are refused as directories", Never()),
    )  # fmt: skip
    yield from marked(
        confined,
        ("mount points are created without following links", Remove()),
        ("confinement is passed to the mounts", Without("confined_to")),
    )  # fmt: skip
    yield from marked(
        ("tests/base/files/test_remove_tree.py",),
        ("removal does not follow links", Replace("entry.lstat", "entry.stat")),
        ("removal does not follow links below the top",
         Without("follow_symlinks"), "defence in depth: moved entries are checked again"),
        ("removal does not start at a link", Never()),
        ("removal at any depth", Instead("_remove_entry(path, spare, 0)")),
        ("locked directories are removed", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_private_git.py", RUNS),
        ("worker gets only the base's objects",
         Instead("('rev-list', '--objects', '--all', '--not', *cut)")),
        ("objects not writable", Instead("(Path(folder) / name).chmod(0o666)")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_copy_untracked.py",),
        ("copies do not follow links", Without("os.O_NOFOLLOW")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_copy_untracked.py",),
        ("possible secrets are copied only if named", Remove()),
        ("list of the repository chooses nothing until allowed",
         Without("_hash(content) in _allowed(repository)")),
        ("links out of the repository not copied", Never("_leads_out(top, path)")),
    )  # fmt: skip
    yield from marked(
        ("tests/repository/test_lfs.py",),
        ("LFS objects must match their hash",
         Instead("hashlib.file_digest(made, 'sha256').hexdigest() != ''")),
        ("total size of LFS objects limited", Never()),
        ("LFS content requires more than its hash", Without("pointer.oid in known")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_private_git.py",),
        ("worker is never root", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_shared_checkout.py",),
        ("changed checkout is not shared", Always("not c.exists() or is_intact(c)")),
        ("change times of a shared checkout are compared", Replace("info.st_ctime_ns", "0")),
        ("owners of a shared checkout are compared",
         Instead("(info.st_mode, info.st_ino, 0, 0, info.st_size)"),
         "defence in depth: a change of owner also changes the change time"),
        ("index of a shared checkout is compared",
         Without("(worktree.git_dir / 'index').read_bytes()")),
        ("checkouts are shared only with equal settings", Without("settings")),
        ("checkouts are shared only with equal attributes",
         Without("repository.common_dir / 'info' / 'attributes'")),
        ("checkout in use is kept", Without("path.name not in used")),
        ("incomplete checkout is not shared", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_shared_checkout.py", "tests/repository/test_shared_packs.py"),
        ("shared checkouts are private to the caller", Without("info.st_mode & 63")),
        ("link in place of shared checkouts is not followed", Without("os.O_NOFOLLOW")),
        ("link in place of the lock of shared checkouts is not followed",
         Without("os.O_NOFOLLOW", at="link-at-lock-of-checkouts-is-not-followed")),
    )  # fmt: skip
    yield from marked(
        ("tests/repository/test_shared_packs.py",),
        ("packs are shared only with descendants of their base",
         Replace("None", "next(iter(known))")),
        ("packs are shared only with an equally shallow history", Without("manifest.cut == cut")),
        ("packs are shared only with a manifest", Instead("ZeroDivisionError")),
        ("manifest of shared packs names no other files", Instead("str")),
        ("sizes of shared packs are compared", Without("path.stat().st_size != size")),
        ("shared packs end with the checksum of their index", Always()),
        ("links among shared packs are not followed",
         Replace("open_regular(file)", "file.open('rb')")),
        ("link in place of shared packs is not followed", Without("not path.is_symlink()")),
        ("layers of a later commit are not shared", Instead("tuple(layers)")),
        ("incomplete shared packs are not completed", Remove()),
        ("pack of the repository holds nothing else", Always()),
        ("objects that are listed twice are counted once",
         Instead("sum(1 for part in parts for _ in part.lines())")),
        ("pack of the repository is undamaged", Without("file.read() == digest.digest()")),
        ("mode of a pack of the user is kept", Always()),
        ("pack that not all may read is copied", Always()),
    )  # fmt: skip
    yield from marked(
        ("tests/system/test_shared_checkouts.py -k overlay",),
        ("no file is added to a shared checkout", Never()),
        ("owner of a shared checkout is not changed", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/state/test_run_record.py",),
        ("limits of a run hold for tasks of a recorded workflow", Give("exclude_unset=False")),
    )  # fmt: skip
    yield from marked(
        ("tests/base/files/test_change_owner.py",),
        ("change of owner with `chown` does not follow links",
         Instead("['chown', '-R', '-L', f'{owner[0]}:{owner[1]}', '--', *map(str, paths)]")),
        ("change of owner of few files does not follow links", Without("follow_symlinks")),
        ("change of owner in Python does not follow links", Without("follow_symlinks")),
        ("worktree's top stays the caller's", Without("path.name != '.git'")),
    )  # fmt: skip
    yield from marked(
        ("tests/repository/test_submodules.py",),
        ("submodule names cannot lead out of `modules`", Without("_is_usable(name)")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_private_git.py", "tests/worker/test_harvest.py", RUNS),
        ("no automatic garbage collection in the store",
         Text("[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n")),
        ("newlines in settings are replaced",
         Instead('value.replace(\'\\\\\', \'\\\\\\\\\').replace(\'"\', \'\\\\"\')')),
    )  # fmt: skip
    yield from marked(
        ("tests/repository/test_worktree.py", "tests/repository/test_disarm.py", RUNS,
         f"{ACCEPTANCE} -k filters"),
        ("programs of the tree disabled in the worktree", Remove()),
        ("index locked by the user's git is left alone", Replace("'xb'", "'wb'")),
        ("no file is assumed unchanged", Text("no-assume-unchanged", "refresh")),
        ("files as new as the index are compared", Remove()),
        ("index of the worktree belongs to the caller", Remove()),
        ("user's changes are not overwritten", Replace("'-m'", "'--reset'")),
    )  # fmt: skip


def limits() -> Iterator[Protection]:
    """Return the protections that end a worker."""
    ends = (LIMITS, RUNS, f"{ACCEPTANCE} -k disk_log_inodes")
    yield from marked(
        ends,
        ("disk limit", Never()),
        ("deleted files count against disk limit", Never()),
        ("limit on the number of files", Never()),
    )  # fmt: skip
    yield from marked(
        (LIMITS,),
        ("unreadable directories stop the worker", Never()),
        ("fork bombs are stopped", Never()),
    )  # fmt: skip
    yield from marked(
        ends,
        ("log limit", Never()),
        ("silent workers are stopped", Never()),
        ("deadline", Never()),
        ("budget", Never("terms.budget is not None")),
        ("SIGKILL after grace", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/scheduling/test_scheduler.py",),
        ("container that fails to start is removed", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/scheduling/test_scheduler.py", "tests/runs/test_runner.py"),
        ("ended container is removed", Instead("None")),
        ("container is removed after any error", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_misplaced_worktrees.py",),
        ("worker continues only in its own worktree", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/test_full_disk.py",),
        ("container stays until its end is recorded", Remove()),
        ("begun worker is not failed by its preparation", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/sandbox/supervision/test_output.py", "tests/runs/test_secrets.py"),
        ("log on disk limited", Instead("data")),
        ("length of lines limited", Instead("started + tail", at="length-of-log-lines-limited")),
        ("lines are sanitised", Unwrap("output_line")),
        ("secrets are redacted from the log", Unwrap("feed")),
        ("secrets at the end of the log are redacted",
         Replace("redacted.flush()", "redacted._held")),
    )  # fmt: skip
    yield from marked(
        (LIMITS, "tests/base/files/test_walk.py", RUNS),
        ("time of measurements limited", Give("until=math.inf")),
        ("hard links count once", Always()),
    )  # fmt: skip
    yield from marked(
        ("tests/base/files/test_walk.py", LIMITS),
        ("walks do not follow links", Without("os.O_NOFOLLOW")),
        ("walks use `lstat`", Without("follow_symlinks")),
        ("walks open directories by descriptor",
         Instead("os.open(f'/proc/self/fd/{self._kept[0]}/{path}', _DIRECTORY)")),
        ("walks do not enter other file systems", Always("info.st_dev == device")),
        ("walks have a timeout", Never("time.monotonic() >= self._until")),
        ("number of open descriptors of a walk limited", Always()),
        ("vanished entries do not end a walk", Never()),
    )  # fmt: skip
    yield from marked(
        (DEADMAN, UNWATCHED),
        ("overdue containers are killed", Without("self._moment(worker) <= now")),
        ("attempts to kill become rare", Without("now < self._not_before")),
        ("services of a dead run are killed", Remove()),
        ("switch ends when a resumed run takes over", Never("self._is_replaced")),
        ("switch ends only for a resumed run's switch", Remove()),
        ("containers of a lost run are killed at once",
         Without("switch.is_lost", at="containers-are-killed-at-once")),
        ("failed kill is repeated", Always()),
        ("signal after the process's death kills at once",
         Give("at_once=switch.is_lost or False", at="containers-are-killed-at-once")),
        ("a signal ends no run", Without("switch.alone", at="containers-are-killed-at-once")),
    )  # fmt: skip
    yield from marked(
        (DEADMAN, UNWATCHED),
        ("switch has its own session", Without("start_new_session")),
        ("switch gets no secrets", Give("env=dict(os.environ)")),
        ("killed switch is replaced", Instead("self._pipe or self._start()")),
    )  # fmt: skip
    yield from marked(
        (DEADMAN,),
        ("later containers are left alone", Always("started.timestamp() <= before")),
    )  # fmt: skip
    yield from marked(
        ("tests/sandbox/supervision/test_supervisor.py",
         "tests/sandbox/supervision/test_watchdog.py", UNWATCHED),
        ("deadline does not wait for measurements",
         Instead("setattr(self, '_look_once', self.meter.look())")),
        ("question at the deadline is reported", Remove()),
        ("deadline does not wait for callbacks", Instead("self._tell_stopping()")),
    )  # fmt: skip
    yield from marked(
        ("tests/sandbox/supervision/test_supervisor.py",
         "tests/sandbox/supervision/test_watchdog.py", UNWATCHED),
        ("switch gets every deadline", Remove()),
    )  # fmt: skip


def words() -> Iterator[Protection]:
    """Return the protections from text that a worker prints."""
    yield from marked(
        ("tests/base/text/test_sanitize.py",),
        ("control characters are replaced", Without("'Cc'", at="hidden-characters-are-replaced")),
        ("format characters are replaced", Without("'Cf'", at="hidden-characters-are-replaced")),
        ("lone surrogates are replaced", Without("'Cs'", at="hidden-characters-are-replaced")),
        ("line separators are replaced", Without("'Zl'", at="hidden-characters-are-replaced")),
        ("paragraph separators are replaced", Without("'Zp'", at="hidden-characters-are-replaced")),
        ("invisible letters are replaced", Without("ord(character) in _UNSEEN")),
        ("line ends are normalised", Replace(r"'\t\n\r'", r"'\t'")),
        ("length of lines limited", Instead("clean")),
    )  # fmt: skip
    yield from marked(
        ("tests/sandbox/supervision/test_output.py",),
        ("rate of recorded progress limited", Never("not (now or since > wait)")),
        ("rate of recorded progress falls with time", Instead("_RECORDED")),
    )  # fmt: skip
    yield from marked(
        ("tests/base/files/test_arrival_times.py", "tests/faces/cli/commands/test_logs.py"),
        ("rate of recorded times limited", Never()),
        ("number of recorded times limited", Never()),
        ("records of times are bounded", Give("most=1 << 40")),
        ("each part of line has its prefix",
         Replace(r'text.replace("\n", "\n" + prefix)', "text")),
    )  # fmt: skip
    yield from marked(
        ("tests/sandbox/supervision/test_watchdog.py",),
        ("number of interventions limited", Replace("self._left", "None")),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/cli/commands/test_conflicts.py",),
        ("a file that receives stdout and stderr of a job is its log",
         Without("os.path.samestat(info, os.fstat(2))")),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/cli/output/test_ci.py",),
        ("CI commands within a line are broken up",
         Replace("_ANYWHERE.sub(f'#{_MARK}', text)", "text")),
        ("CI commands at a line's start are broken up",
         Instead("_ANYWHERE.sub(f'#{_MARK}', text)")),
        ("`stop-commands` encloses hostile text", Instead("safe")),
        ("each block has its own token", Instead("'0' * 32")),
        ("CI commands in JSON are escaped", Unwrap(".replace")),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/cli/output/test_ci.py",),
        ("CI commands in several chunks are broken up",
         Replace(r"text.rfind('\n') + 1", "len(text)")),
        ("output of `exec` is cleaned in a job", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/cli/output/test_ci.py",),
        ("`logs --raw` refused in a job", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/sandbox/supervision/test_verdict.py",),
        ("observations override the agent's report", Remove()),
        ("a lost network explains a failure", Instead("verdict.with_note(verdict.message)")),
        ("non-zero exit code is no success", Never("failed")),
    )  # fmt: skip


def secrets() -> Iterator[Protection]:
    """Return the protections that keep a secret in memory only."""
    yield from marked(
        ("tests/base/text/test_redact.py",),
        ("values are redacted", Unwrap("sub")),
        ("values between escape sequences are redacted", Instead("[]")),
        ("values in base64 are redacted", Remove()),
        ("values at any base64 offset are redacted", Replace("3", "1")),
        ("last base64 character is redacted", Without("encoded[first:]")),
        ("values in URL-safe base64 are redacted", Remove()),
        ("values in wrapped base64 are redacted", Remove()),
        ("values in hex are redacted", Remove()),
        ("values in upper-case hex are redacted", Unwrap(".upper")),
        ("values in wrapped hex are redacted", Remove()),
        ("URL-encoded values are redacted", Remove()),
        ("lower-case URL-encoded values are redacted", Remove()),
        ("JSON-escaped values are redacted", Remove()),
        ("JSON with escaped slashes is redacted",
         Replace(r"escaped.replace('/', '\\/')", "b''.decode()")),
        ("values across chunks are redacted", Instead("len(data)")),
        ("longest value is redacted first", Without("reverse")),
        ("variables with secret names are redacted", Instead("url_password(value)")),
        ("passwords in URLs are redacted", Instead("None")),
    )  # fmt: skip
    yield from marked(
        ("tests/state/test_secret_files.py",),
        ("in memory: innermost mount decides", Always("len(mount.parts) >= len(best.parts)")),
        ("in memory: links are resolved", Unwrap(".resolve")),
    )  # fmt: skip
    made = "defence in depth: the directory is new and private to the caller"
    yield from marked(
        ("tests/runs/test_secrets.py -k AgentConfig",),
        ("size of agent config limited",
         Instead("agent_config.read_bytes()")),
        ("keys in agent config are redacted", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/state/test_secret_files.py",),
        ("secrets are in memory only", Without("is_in_memory(root)")),
        ("long secrets refused", Never()),
        ("length of read secret files limited", Without("MAX_BYTES + 1")),
        ("short secrets refused", Never()),
        ("existing directory of another user refused", Never()),
        ("another user's directory is not removed", Always()),
        ("another user's directory is not forgotten", Always()),
        ("another user's private values are not read", Always()),
        ("linked directory refused", Without("stat.S_ISDIR(info.st_mode)")),
        ("directory of another owner refused", Without("info.st_uid == os.getuid()")),
        ("run's directory is private to the caller", Give("mode=0o755")),
        ("worker's directory is private to the worker", Replace("0o500", "0o555")),
        ("worker's directory is private while it is written",
         Without("mode"), "defence in depth: the parent directory is private"),
        ("secret files are private to the worker", Replace("0o400", "0o444")),
        ("secret files are newly created", Without("os.O_EXCL"), made),
        ("secret files do not follow links", Without("os.O_NOFOLLOW"), made),
        ("secret files belong to the worker", Remove()),
        ("secret directory belongs to the worker", Remove()),
        ("secrets are removed after any error", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_secrets.py", "tests/system/test_secrets.py"),
        ("secrets mounted read-only", Give("read_only=False")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_secrets.py", "tests/system/test_secrets.py"),
        ("secrets are redacted from commit messages", Unwrap("text")),
    )  # fmt: skip


def triggers() -> Iterator[Protection]:
    """Return the protections of alerts and notifications from a worker's output."""
    tests = ("tests/sandbox/supervision/test_watchdog.py",)
    yield from marked(
        tests,
        ("number of remembered error lines limited", Never()),
        ("stored part of a long line limited", Instead(r"text[text.rfind(b'\n') + 1:]")),
        ("number of inspected lines limited", Instead("iter(int, 1)")),
        ("repeated line is sanitised", Unwrap("output_line")),
        ("prompt is sanitised", Unwrap("output_line")),
        ("file names are sanitised", Unwrap("one_line")),
        ("number of inspected files limited", Give("most=10 ** 9")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_notifications.py",),
        ("notification command runs without a shell",
         Replace("shlex.split(target)", "['sh', '-c', target]")),
        ("hanging notification command is killed", Without("timeout")),
        ("run's end does not wait for hanging notifications", Without("_LAST")),
        ("target's output is not shown", Instead("str(error)")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_notifications.py",),
        ("hanging server times out", Without("timeout")),
    )  # fmt: skip


def caches() -> Iterator[Protection]:
    """Return the protections of caches from other workers, and of runs from other users."""
    yield from marked(
        ("tests/system/test_users.py",),
        ("users: a run that cannot be read is somebody else's", Always()),
        ("users: a run of another user is live while its process is", Always()),
        ("users: cleanups name the runs of others", Replace("run.other_user", "None")),
        ("users: root's git writes as the owner of the repository", Instead("None")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/test_place.py",),
        ("caches are filled only from files of this machine", Never()),
    )
    tests = ("tests/worker/workspace/test_caches.py", "tests/system/test_caches_offline.py")
    yield from marked(
        tests,
        ("each worker has its own copy", Give("source=lower")),
        ("each worker has its own layer",
         Instead("BindMount(source=lower, target=target, read_only=False)")),
        ("a cache belongs to the worker's user", Never()),
        ("an empty cache replaces no other", Never()),
        ("links are copied as links", Give("symlinks=False")),
        ("caches are not writable for others", Without("mode")),
        ("special files are not published", Never()),
        ("publishing does not follow links", Replace("path.lstat", "path.stat")),
        ("caches of live runs are kept", Never("run.other_user is None and run.is_live()")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_artifacts.py",),
        ("no link or special file is copied", Instead("not stat.S_ISDIR(info.st_mode)")),
        ("a copy replaces nothing", Without("os.O_EXCL")),
        ("no artifact is a part of a git repository", Never()),
        ("no part of a git repository is copied", Never()),
        ("bare repositories are recognised", Never("is_git")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/reports/test_worker_tests.py",),
        ("size of a JUnit file limited", Never()),
        ("number of tests limited", Never()),
        ("size of all JUnit files limited", Never()),
        ("size of the tests' texts limited", Instead("text[:most]")),
        ("odd encodings are named", Without("ValueError")),
        ("depth of a JUnit file limited", Never()),
    )  # fmt: skip
    yield from marked(
        tests,
        ("caches are published only after success",
         Without("verdict.status is not Status.SUCCESS")),
    )  # fmt: skip
    yield from marked(
        tests,
        ("checks do not see the worker's cache changes", Without("caches")),
    )  # fmt: skip
    yield from marked(
        tests,
        ("cache layers count against the disk limit", Without("*self.caches")),
        ("cache layers are removed after the run", Remove()),
    )  # fmt: skip
