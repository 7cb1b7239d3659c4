"""Protections of a workflow's order and outcome."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import Instead, Never, Remove, Without

RESULTS = "tests/base/test_results.py"
AFTER = "tests/faces/cli/test_previous_run.py"
RUNNER = "tests/runs/test_workflows.py tests/runs/scheduling/test_dependencies.py"


def workflows() -> Iterator[Protection]:
    """Return the protections of a workflow's order, bases and exit code."""
    yield from marked(
        (RUNNER,),
        ("unneeded task passes on its dependencies' work", Remove()),
        ("task that never ran contributes no commit", Without("not result.never_ran")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/scheduling/test_admission.py", RUNNER),
        ("tasks wait for free CPUs and memory", Never()),
        ("no start while memory is short", Never()),
        ("no start while the disk is full", Never()),
    )  # fmt: skip
    yield from marked(
        (RUNNER,),
        ("admission applies without a workflow", Never()),
    )  # fmt: skip
    yield from marked(
        (RESULTS,),
        ("skipped required task fails the run",
         Never("result.required and result.reason is Reason.DEPENDENCY")),
    )  # fmt: skip
    yield from marked(
        ("tests/base/text/test_path_patterns.py",),
        ("brackets match a literal name", Never("0 < size <= last")),
        ("pattern with a slash is anchored", Without("'/' not in text.rstrip('/')")),
        ("wildcard does not match a slash", Instead("[path]")),
    )  # fmt: skip
    yield from marked(
        (RUNNER,),
        ("paths are enforced without a workflow",
         Instead("not paths or not worker.run.request.workflow or tip == worker.base or "
                 "(verdict.status is not Status.SUCCESS)")),
        ("paths are enforced for unlisted files", Never()),
    )  # fmt: skip
    yield from marked(
        (AFTER,),
        ("dependents of a changed task are repeated",
         Instead("[task.task, settings, task.mode, task.when]")),
        ("batches are identified by content", Never()),
    )  # fmt: skip
    yield from marked(
        (AFTER,),
        ("continuing from a live run refused", Never()),
        ("continuing from a purged run refused", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_foreach_items.py",),
        ("`foreach` command can be stopped", Remove()),
        ("`foreach` includes uncommitted files",
         Instead("repository.resolve(self._config.base)")),
    )  # fmt: skip
