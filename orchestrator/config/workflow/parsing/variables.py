"""Check the variables that a workflow's texts use, and collect the variables' values."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from orchestrator.base.text.sanitize import one_line
from orchestrator.config.node import Node
from orchestrator.config.workflow.parsing.diagnostics import Mistakes
from orchestrator.config.workflow.parsing.foreach import as_text
from orchestrator.config.workflow.parsing.manifest import BUILT_IN
from orchestrator.config.workflow.parsing.task_nodes import Written, inputs_of
from orchestrator.config.workflow.parsing.templates import FILLED, QUOTE, Use, Values, uses

_EACH = ("item", "items", "index")
RESULTS = "results"


def variables_of(
    root: Node, given: Mapping[str, str], tasks: Sequence[Written], mistakes: Mistakes
) -> Values:
    """Return the values of the user's variables, after checking every use of a variable.

    Args:
        root: The file.
        given: Values given with `--var`, which override those in the file.
        tasks: The tasks of the file.
        mistakes: Collects the problems.
    """
    vars_node = _member(root, "vars")
    listed = vars_node.value if vars_node is not None and isinstance(vars_node.value, dict) else {}
    values = {name: (value,) for name, value in given.items()}
    for name, node in listed.items():
        if name not in values and node.value is None:
            mistakes.add(node, f"`vars.{name}` has no value: set it with `--var {name}=VALUE`")
        values.setdefault(name, (as_text(node.as_text.plain()),))
    used = {use.name for use in _check(root, tasks, list(values), mistakes)}
    for name in given:
        if name not in listed and name not in used:
            meant = mistakes.meant(name, [*listed, *used])
            mistakes.add(None, f"no text uses the variable `{one_line(name, limit=60)}`{meant}")
    return values


def _member(node: Node | None, key: str) -> Node | None:
    return node.value.get(key) if node is not None and isinstance(node.value, dict) else None


def _check(
    root: Node, tasks: Sequence[Written], names: Sequence[str], mistakes: Mistakes
) -> Iterator[Use]:
    defaults, ids = _member(root, "defaults"), {task.id for task in tasks}
    if defaults is not None and isinstance(defaults.value, dict):
        yield from _check_uses(_uses(defaults.value, "defaults"), names, ids, mistakes)
    for task in tasks:
        each = _member(task.node, "foreach")
        if each is not None:
            yield from _check_uses(uses(each, f"{task.place}.foreach"), names, ids, mistakes)
            _check_items(task, mistakes)
        allowed = [*names, *(_EACH if each is not None else ())]
        allowed += [RESULTS] if inputs_of(task) else []
        yield from _check_uses(_uses(task.members, task.place), allowed, ids, mistakes)
        program = task.members.get("agent_cli") or _member(defaults, "agent_cli")
        # protection: results-in-workflows-commands-refused
        if program is not None and program.value == "shell":
            # A shell would execute results of other tasks, which are untrusted.
            text = task.members.get("task")
            for use in uses(text, f"{task.place}.task") if text is not None else ():
                if use.name == RESULTS:
                    mistakes.add(
                        use.node,
                        f"`{use.key}` contains `{use}`, which a shell would interpret as code: "
                        "read the results from the file `$ORCHESTRATOR_RESULTS` instead",
                    )


def _uses(members: Mapping[str, Node], place: str) -> Iterator[Use]:
    for key, member in members.items():
        if key in FILLED:
            yield from uses(member, f"{place}.{key}")


def _check_uses(
    found: Iterable[Use], allowed: Sequence[str], ids: Collection[str], mistakes: Mistakes
) -> Iterator[Use]:
    """Yield the templates of this program, after checking that each gets a value."""
    for use in found:
        where = f"`{use.key}` contains `{use}`"
        if use.name in ids and use.name not in allowed:
            mistakes.add(
                use.node,
                f"{where}: for results of the task `{use.name}`, name it in `reduce` and use "
                "`{{results}}`",
            )
            continue
        if not use.is_ours:
            continue
        if use.name == "env" and use.path:
            name = ".".join(use.path)
            mistakes.add(
                use.node,
                f"{where}: no variable of yours gets into a text by itself; pass it with "
                f"`--var {name}=VALUE` and write `{{{{{name}}}}}`",
            )
        elif use.path and use.name != "item":
            mistakes.add(use.node, f"{where}: only an item has parts, as in `{{{{item.title}}}}`")
        elif use.filter not in (None, QUOTE):
            mistakes.add(use.node, f"{where}: the only filter is `|{QUOTE}`")
        elif use.name == RESULTS and (use.filter or ".task" not in use.key[-5:]):
            mistakes.add(use.node, f"{where}, which is allowed only in `task` and without a filter")
        elif use.name not in allowed:
            why = f"which has no value{mistakes.meant(use.name, [*allowed])}"
            if use.name in (*_EACH, *BUILT_IN):
                why = f"which requires `{'foreach' if use.name in _EACH else 'reduce'}`"
            mistakes.add(use.node, f"{where}, {why}")
        yield use


def _check_items(task: Written, mistakes: Mistakes) -> None:
    """Check that a `foreach` task's text has `{{item}}`, or `{{items}}` if there is a `batch`."""
    text = task.members.get("task")
    held = {use.name for use in uses(text, "task")} if text is not None else set()
    if not held & {*_EACH}:
        mistakes.add(
            text or task.node,
            f"`{task.place}.task` must contain the item: use `{{{{item}}}}` or `{{{{items}}}}`",
        )
    batch = task.members.get("batch")
    if batch is not None and batch.value != 1:
        for use in _uses(task.members, task.place):
            if use.name == "item":
                mistakes.add(
                    use.node, f"`{use.key}` contains `{use}`; use `{{{{items}}}}` with `batch`"
                )


def find_unquoted_items(tasks: Sequence[Written], defaults: Mapping[str, Node]) -> Iterator[str]:
    """Yield warnings about untrusted items, such as file names, that a shell would interpret."""
    for task in tasks:
        each = _member(task.node, "foreach")
        if each is None or _member(each, "items") is not None:
            continue
        program = task.members.get("agent_cli") or defaults.get("agent_cli")
        read = {"setup", "checks", *(["task"] if program and program.value == "shell" else [])}
        members = {key: node for key, node in {**defaults, **task.members}.items() if key in read}
        for use in _uses(members, task.place):
            if use.name in ("item", "items") and use.filter is None:
                yield (
                    f"`{use.key}` puts items into a shell command without quotes, so an item may "
                    f"run as code: use the filter `|{QUOTE}`"
                )
