"""A test that the host writes files only in known ways.

A file at a path that a repository, a worker or an earlier run may have prepared is written by
`base.files.output` or `base.files.atomic`. This test lists every other function of
the source that creates, replaces or moves files, with the reason why no one can have prepared them.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import orchestrator

SOURCE = Path(orchestrator.__file__).parent
WRITERS = frozenset(
    {"write_text", "write_bytes", "rename", "renames", "touch", "truncate", "symlink_to", "symlink",
     "hardlink_to", "link", "mkdir", "makedirs", "mknod", "mkfifo", "copyfile", "copyfileobj",
     "copy2", "copytree", "move", "mkstemp", "NamedTemporaryFile"}
)  # fmt: skip
"""Names of functions and methods that create, write, replace or move files."""
MODES = frozenset("rwaxbt+")

ALLOWED: Mapping[str, Mapping[str, str]] = {
    "This is the helper.": {
        "base/files/atomic.py": "replace_file",
        "base/files/shared.py": "make_shared open_shared",
        "base/files/output.py": "create_output open_to_append _Place._open_if_read _end_of "
        "_replace",
    },
    "The descriptor was opened by the helper, or is stdout.": {
        "base/files/copy_bytes.py": "copy_bytes",
        "runs/reports/github.py": "write_summary write_outputs _append",
        "worker/workspace/artifacts.py": "_copy",
        "faces/cli/commands/diff.py": "diff.texts",
        "sandbox/queue.py": "Results.read Results.write",
        "faces/cli/output/streams.py": "_fill",
    },
    "The file is in a container, which runs the code.": {
        "agents/clean_session.py": "clean_file",
        "network/broker/ledger.py": "Ledger.__init__",
        "network/broker/processes.py": "Dispatcher._start",
        "network/broker/server.py": "main",
        "engine/places/in_place/channel.py": "Channel.__init__ Channel.go",
        "engine/places/in_place/commands.py": "give_shell",
        "engine/places/in_place/incoming.py": "append _unpack _replace _move measure watch beat "
        "_measure _note_full",
        "engine/places/in_place/porter.py": "Porter.__init__ Porter._begin Porter.dismiss",
        "engine/places/in_place/records.py": "Journal.__init__ Journal.add Output.complete alone "
        "pack_part _write_archive",
        "engine/probes/limits_in_container.py": "_memory _read_only_root _scratch _tmp _tmp_inodes",
        "worker/in_container/commit_files.py": "Lfs._hand_over",
        "worker/in_container/host_git.py": "HostGit.write_output",
        "worker/in_container/pip_wheels.py": "main",
        "worker/in_container/safe_files.py": "copy_regular write put_aside tidy_objects",
        "worker/in_container/work_tree.py": "WorkTree._rename_nested",
    },
    "The directory is new, has a random name, and belongs to this process.": {
        "faces/cli/commands/image.py": "build_variables",
        "faces/cli/sandbox_batch.py": "_open",
        "faces/cli/init/command.py": "_needs_naming",
        "engine/docker/ssh.py": "SshTunnel._start",
        "engine/images/recipes.py": "build_context",
        "faces/mcp/starting.py": "_read",
        "worker/workspace/untracked.py": "_matching",
        "sandbox/batch.py": "_write",
        "sandbox/home.py": "Home.create Home.note_ready",
    },
    "The directory is in the user's state directory, and no sandbox sees it.": {
        "sandbox/deadlines/reaper.py": "main",
        "sandbox/home.py": "_ensure_reaper",
        "sandbox/live/snapshots.py": "remove take",
        "sandbox/live/exposed.py": "ExposedPorts._start",
    },
    "The directory was created for it.": {
        "sandbox/live/files.py": "Files.download",
    },
    "The path is in the state directory below `.git`, which no commit can contain, and which is "
    "mounted into no container.": {
        "sandbox/deadlines/dead_man_process.py": "Switch._sign Switch._kill",
        "sandbox/network/network_log.py": "NetworkFollower.__init__ NetworkFollower._write",
        "sandbox/supervision/output.py": "WorkerLog._open _put_aside",
        "sandbox/sidecars/sidecar.py": "Sidecar._follow",
        "base/files/arrival_times.py": "ArrivalRecorder.note",
        "repository/incoming/kept_refs.py": "Parts.let_in",
        "repository/checkouts/lfs.py": "_replace write_record _take note_made",
        "repository/repository.py": "Repository.exclude_worktrees",
        "repository/checkouts/submodules.py": "ready_submodules",
        "repository/checkouts/worktree.py": "add_worktree _make_absolute put_aside "
        "put_worktree_aside clear_place",
        "review/judging/evidence.py": "Evidence._together",
        "review/judging/mutant_runs.py": "_chance",
        "review/landing/checkout.py": "_index_copy",
        "runs/live/broker_container.py": "start_broker",
        "runs/resuming/detach.py": "continue_in_background",
        "runs/scheduling/scheduler.py": "_finish",
        "state/worker/checkpoints.py": "Checkpoints.note_given_up",
        "state/worker/turns.py": "queue_message take_message",
        "state/run_directory.py": "RunDirectory.create RunDirectory.take_over "
        "RunDirectory._sign RunDirectory.mark_as_test "
        "RunDirectory.is_live RunDirectory.hold RunDirectory.write_result RunDirectory.log_event",
        "worker/attempts.py": "_archive_attempt",
        "worker/steps/checks.py": "_Checks._check_out _Checks._open",
        "worker/harvest/plain_harvest.py": "pack_plainly",
        "worker/prepare.py": "ready_more _prepare",
        "worker/turns/sessions.py": "note_lost_session",
        "worker/workspace/artifacts.py": "make_place _take_artifacts",
        "worker/workspace/caches.py": "find_caches _make _copied publish remove_generations",
        "worker/workspace/copy_untracked.py": "write_record",
        "worker/workspace/overlay_probe.py": "check_memory probe _probe_streams",
        "worker/workspace/session_files.py": "make_session _keep",
        "worker/workspace/shared_files.py": "Shared.__init__ Shared.give_inputs",
        "worker/workspace/store_state.py": "note_earlier",
        "worker/workspace/submodules.py": "lay_out write_submodules _keep_patch",
    },
    "The git directory is new: a quarantine, or the store of a worker before any task runs.": {
        "repository/git_directory.py": "make_bare",
        "repository/commits/merge_tree.py": "make_quarantine",
        "repository/objects/object_packs.py": "pack_commit _empty _pack_history put_file",
        "repository/objects/private_place.py": "private_place",
        "repository/objects/shared_packs.py": "pack_base _keep _remove",
        "repository/incoming/quarantine.py": "_make_quarantine",
        "repository/checkouts/snapshot.py": "snapshot",
        "worker/workspace/mounts.py": "Workspace.complete_harvest",
        "worker/workspace/private_git.py": "make_store _copy_index _make_git_dir _check_out",
        "worker/workspace/shared_checkout.py": "Checkouts._find _make prune_checkouts",
        "worker/workspace/submodules.py": "make_git_dirs _make_git_dir",
    },
    "An index or configuration is replaced under git's own lock, which must not exist before.": {
        "repository/checkouts/checkout.py": "Worktree.accept_owner Worktree._lock_index",
        "repository/checkouts/disarm.py": "_changing",
    },
    "The tree is a new worktree, no task runs, and no link is followed.": {
        "repository/checkouts/worktree.py": "make_parent",
        "worker/in_container/write_lines.py": "_File.replace _File._make",
        "worker/workspace/confined.py": "make_scratch _open_directory",
        "worker/workspace/copy_untracked.py": "_open_folder _copy_one _copy_file",
        "worker/workspace/furnish.py": "WorktreeFiller.put",
        "worker/workspace/submodules.py": "point_to",
    },
    "The directory was opened without following links, and the file is new in it.": {
        "engine/places/in_place/archive.py": "_write",
    },
    "The directory in a shared one was checked to belong to this user.": {
        "base/machine.py": "reserve_name",
    },
    "The tree is being removed; it is never left.": {"base/files/remove_tree.py": "_remove_entry"},
    "The directory in memory was checked to belong to this user.": {
        "state/secret_files.py": "grant_directory _own_directory _write_files readable_directory",
    },
    "The directory is in the user's home; the file is written by the helper.": {
        "faces/cli/output/build_progress.py": "BuildProgress.end",
        "engine/images/registry.py": "push_images",
        "faces/web/access_control.py": "Sessions.open",
    },
    "The kernel's file of this process.": {
        "sandbox/deadlines/dead_man_process.py": "main",
    },
    "A pipe of a container is held open: nothing is written.": {
        "engine/docker/counters.py": "_hold",
    },
    "Another method has the same name: no file is written.": {
        "sandbox/supervision/launch.py": "create",
        "sandbox/network/ports.py": "WorkerPorts.move",
        "worker/context.py": "WorkerContext.broker_link",
        "worker/in_container/write_lines.py": "write_lines",
    },
}
"""Functions that write files, by the reason why they may."""


def _writes(call: ast.Call) -> bool:
    function = call.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    if name == "replace":
        # `Path.replace`: texts, paths' suffixes and dataclasses are replaced with more arguments.
        return len(call.args) == 1 and not call.keywords
    if name in ("open", "fdopen", "FileIO"):
        text = ast.unparse(call)
        if text.startswith("os.open(") and len(call.args) > 2:
            return True  # with the mode of a new file
        if "O_" in text:
            return any(flag in text for flag in ("O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND"))
        given = [*call.args, *(word.value for word in call.keywords if word.arg == "mode")]
        texts = [one.value for one in given if isinstance(one, ast.Constant)]
        modes = [one for one in texts if isinstance(one, str) and MODES.issuperset(one)]
        return any(set("wax+").intersection(mode) for mode in modes)
    return name in WRITERS


def _writers(tree: ast.AST, place: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the qualified names of functions that write files."""
    for node in ast.iter_child_nodes(tree):
        is_named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        inner = (*place, node.name) if is_named else place  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and _writes(node):
            yield ".".join(place)
        yield from _writers(node, inner)


def test_files_are_written_only_by_the_helpers_and_by_listed_functions() -> None:
    found = {
        f"{path.relative_to(SOURCE)}: {name}"
        for path in SOURCE.rglob("*.py")
        for name in _writers(ast.parse(path.read_text()))
    }
    allowed = {
        f"{module}: {name}"
        for modules in ALLOWED.values()
        for module, names in modules.items()
        for name in names.split()
    }
    assert sorted(found - allowed) == [], (
        "use orchestrator.base.files.output or orchestrator.base.files.atomic"
    )
    assert sorted(allowed - found) == [], "no longer writes files"


def test_the_search_finds_every_way_to_write() -> None:
    for code in (
        "path.open('w')", "open(name, mode='ab')", "path.write_text(text)", "scratch.replace(path)",
        "os.open(name, os.O_WRONLY | os.O_CREAT)", "os.open(name, flags, 0o600)",
        "os.fdopen(made, 'wb')", "shutil.move(a, b)",
        "tempfile.NamedTemporaryFile(delete=False)", "os.symlink(a, b)", "path.mkdir()",
    ):  # fmt: skip
        assert [*_writers(ast.parse(code))], code
    for code in (
        "path.open('rb')",
        "text.replace('a', 'b')",
        "open(name)",
        "os.open(n, os.O_PATH)",
    ):
        assert not [*_writers(ast.parse(code))], code
