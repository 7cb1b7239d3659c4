"""Protections of a workflow's order and outcome."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

RESULTS = "tests/test_results.py"
AFTER = "tests/cli/test_previous_run.py"
RUNNER = "tests/runs/test_workflows.py tests/scheduling/test_dependencies.py"


def workflows() -> Iterator[Protection]:
    """Return the protections of a workflow's order, bases and exit code."""
    yield from patches(
        "scheduling/dependencies.py", (RUNNER,),
        ("unneeded task passes on its dependencies' work", "            elif result.reason is not "
         "Reason.CONFLICT and name in tasks:\n                pending.extend("
         "reversed(_before(tasks[name])))\n", ""),
        ("task that never ran contributes no commit", " and not result.never_ran:", ":"),
    )  # fmt: skip
    yield from patches(
        "scheduling/admission.py", ("tests/scheduling/test_admission.py", RUNNER),
        ("tasks wait for free CPUs and memory",
         "if not fits(demands, cpus=machine.cpus, memory=machine.memory):", "if False:"),
        ("no start while memory is short", "if free is not None and free <",
         "if False and 0 <"),
        ("no start while the disk is full", "if disk < _LEAST_DISK:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "scheduling/queue.py", (RUNNER,),
        ("admission applies without a workflow", "            if problem is not None:",
         "            if False and problem is not None:"),
    )  # fmt: skip
    yield from patches(
        "results.py", (RESULTS,),
        ("skipped required task fails the run",
         "result.required and result.reason is Reason.DEPENDENCY", "False"),
    )  # fmt: skip
    yield from patches(
        "text/path_patterns.py", ("tests/text/test_path_patterns.py",),
        ("brackets match a literal name", "if 0 < size <= last and", "if False and"),
        ("pattern with a slash is anchored", 'if not anchored and "/" not in text.rstrip("/"):',
         "if not anchored:"),
        ("wildcard does not match a slash", 'names = path.split("/")\n        last',
         "names = [path]\n        last"),
    )  # fmt: skip
    yield from patches(
        "worker/lifecycle.py", (RUNNER,),
        ("paths are enforced without a workflow", "if not paths or tip == worker.base",
         "if not paths or not worker.run.request.workflow or tip == worker.base"),
        ("paths are enforced for unlisted files", "if not changed.total or not changed.is_whole:",
         "if False:"),
    )  # fmt: skip
    yield from patches(
        "workflow/contents.py", (AFTER,),
        ("dependents of a changed task are repeated",
         "content = [task.task, settings, task.mode, task.when, before, inputs]",
         "content = [task.task, settings, task.mode, task.when]"),
        ("batches are identified by content",
         "if name not in matched and left[digest]:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "cli/previous_run.py", (AFTER,),
        ("continuing from a live run refused", "    if directory.is_live():", "    if False:"),
        ("continuing from a purged run refused", "    there.check_kept(workflow, done)\n", ""),
    )  # fmt: skip
    yield from patches(
        "runs/foreach_items.py", ("tests/runs/test_foreach_items.py",),
        ("`foreach` command can be stopped", "            runner.cancel(kill=kill)",
         "            pass"),
        ("`foreach` includes uncommitted files", "base_commit(repository, self._config)",
         "repository.resolve(self._config.base)"),
    )  # fmt: skip
