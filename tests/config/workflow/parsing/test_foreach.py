"""Tests of `foreach` and templates: created tasks, quoting, refused items."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.path_patterns import matching
from orchestrator.config.workflow.model import MOST_TASKS
from orchestrator.config.workflow.parsing.diagnostics import Mistakes
from orchestrator.config.workflow.parsing.foreach import LONGEST_ITEM, Expand, Source, expander
from orchestrator.config.workflow.parsing.reader import Reading, read_workflow
from orchestrator.config.workflow.parsing.task_builder import Maker


def read(
    tmp_path: Path,
    text: str,
    items: Sequence[str] | None = None,
    *,
    expand: Expand | None = None,
    variables: dict[str, str] | None = None,
) -> Reading:
    path = tmp_path / "flow.yaml"
    path.write_text(text)
    if items is not None:
        expand = lambda _: items  # noqa: E731
    return read_workflow(path, variables=variables, expand=expand)


def test_items_from_words_of_a_variable(tmp_path: Path) -> None:
    text = """
vars: {issues: null}
tasks:
  - {id: solve, task: "Solve issue {{item}}", foreach: {words: "{{issues}}"}}
  - {id: check, task: "true", depends_on: [solve]}
"""
    found = read(tmp_path, text, variables={"issues": " #12\t#15\n"})
    assert texts(found) == {
        "solve-1": "Solve issue #12", "solve-2": "Solve issue #15", "check": "true",
    }  # fmt: skip
    assert "|quote" not in "".join(found.warnings)
    shell = text.replace("id: solve,", "id: solve, agent_cli: shell,")
    (warning,) = read(tmp_path, shell, variables={"issues": "$(id)"}).warnings
    assert "use the filter `|quote`" in warning
    assert list(texts(read(tmp_path, text, variables={"issues": " "}))) == ["check"]


def texts(reading: Reading) -> dict[str, str]:
    return {task.id: task.task for task in reading.workflow.tasks}


GLOB = "tasks: [{id: m, task: '%s', foreach: {glob: 'src/*'}%s}]"


class TestBatches:
    def test_each_item_is_a_task(self, tmp_path: Path) -> None:
        reading = read(
            tmp_path, "tasks: [{id: fix, task: 'Solve #{{item}}', foreach: [1, x, 2.5]}]"
        )
        assert texts(reading) == {"fix-1": "Solve #1", "fix-2": "Solve #x", "fix-3": "Solve #2.5"}
        assert {task.group for task in reading.workflow.tasks} == {"fix"}

    def test_items_are_grouped_in_batches(self, tmp_path: Path) -> None:
        items = [f"src/{number}.py" for number in range(50)]
        reading = read(tmp_path, GLOB % ("{{index}}:\\n{{items}}", ", batch: 10"), items)
        tasks = reading.workflow.tasks
        assert [task.id for task in tasks] == [f"m-{number}" for number in range(1, 6)]
        told = [line for task in tasks for line in task.task.split("\\n")[1].splitlines()]
        assert [item for item in told if item] == items

    def test_the_last_batch_may_be_smaller(self, tmp_path: Path) -> None:
        reading = read(
            tmp_path, 'tasks: [{id: m, task: "{{items}}", foreach: [a, b, c], batch: 2}]'
        )
        assert texts(reading) == {"m-1": "a\nb", "m-2": "c"}

    def test_dependency_on_a_foreach_means_all_batches(self, tmp_path: Path) -> None:
        text = """\
tasks:
  - {id: sum, task: "{{results}}", reduce: map, model: big}
  - {id: next, depends_on: map}
  - {id: map, task: "{{item}}", foreach: [a, b], depends_on: first, model: small}
  - {id: first}
"""
        workflow = read(tmp_path, text).workflow
        assert [task.id for task in workflow.tasks] == ["first", "map-1", "map-2", "sum", "next"]
        assert workflow["map-2"].depends_on == ("first",)
        assert workflow["sum"].depends_on == workflow["sum"].inputs == ("map-1", "map-2")
        assert workflow["sum"].task == "{{results}}", "results are inserted later"
        assert (workflow["next"].depends_on, workflow["next"].inputs) == (("map-1", "map-2"), ())

    def test_without_items_dependents_use_its_dependencies(self, tmp_path: Path) -> None:
        text = """\
tasks:
  - {id: first}
  - {id: map, task: "{{item}}", foreach: [], depends_on: first}
  - {id: again, task: "{{item}}", foreach: [], depends_on: map}
  - {id: sum, task: "{{results}}", reduce: [again, first]}
  - {id: after, depends_on: again}
"""
        reading = read(tmp_path, text)
        assert [task.id for task in reading.workflow.tasks] == ["first", "sum", "after"]
        assert reading.workflow["after"].depends_on == ("first",)
        assert reading.workflow["sum"].depends_on == ("first",)
        assert reading.workflow["sum"].inputs == ("first",)
        assert reading.notices == (
            "`map` has no items: tasks that depend on it run without it",
            "`again` has no items: tasks that depend on it run without it",
        )

    def test_unknown_items_are_one_task(self, tmp_path: Path) -> None:
        text = """\
tasks:
  - {id: map, task: "{{item}}", foreach: {command: "ls {{where}}"}}
  - {id: sum, reduce: map}
"""
        reading = read(tmp_path, text, variables={"where": "src"})
        assert texts(reading) == {"map": "{{item}}", "sum": "sum"}
        assert reading.workflow["map"].group == "map"
        assert reading.workflow["sum"].inputs == ("map",)
        assert reading.notices == ("the number of tasks of `map` is not known before the run",)

    def test_variables_are_filled_in_before_items_are_read(self, tmp_path: Path) -> None:
        asked: list[Source] = []

        def expand(source: Source) -> list[str]:
            asked.append(source)
            return ["x"]

        text = "vars: {where: src}\n" + GLOB.replace("src/*", "{{where}}/*") % ("{{item}}", "")
        read(tmp_path, text, expand=expand, variables={"where": "lib"})
        assert asked == [Source("glob", ("lib/*",))]


class TestRefusals:
    @pytest.mark.parametrize(
        ("items", "told"),
        [
            ([""], "an item of `foreach` is empty"),
            (["x" * (LONGEST_ITEM + 1)], f"is longer than {LONGEST_ITEM} characters"),
            (["a\0b"], "contains NUL or is not valid Unicode"),
            (["a\udcff"], "contains NUL or is not valid Unicode"),
            (
                ["x"] * (MOST_TASKS + 1),
                "1001 items make 1001 tasks, more than 1000: set `batch: 2`",
            ),
        ],
    )
    def test_invalid_item_is_refused(self, tmp_path: Path, items: list[str], told: str) -> None:
        with pytest.raises(ConfigError) as caught:
            read(tmp_path, GLOB % ("{{item}}", ""), items)
        assert "flow.yaml:1: `tasks[1].foreach`: " in caught.value.message
        assert told in caught.value.message

    def test_results_in_an_item_are_plain_text(self, tmp_path: Path) -> None:
        task = "{id: m, task: '{{item}} {{results}}', foreach: {glob: x}, reduce: r}"
        workflow = read(tmp_path, f"tasks: [{{id: r}}, {task}]", ["{{ results }}"]).workflow
        assert workflow["m-1"].task == "{{ results }} {{results}}"
        assert workflow["m-1"].results_at == (1,)

    def test_task_text_over_the_limit_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="set a smaller `batch`"):
            read(tmp_path, GLOB % ("{{items}}", ", batch: 100"), ["x" * 2000] * 100)

    def test_hint_for_a_long_task_without_batch(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="longer than 100000 bytes") as caught:
            read(tmp_path, f"tasks: [{'x' * 100_001}]")
        assert "batch" not in caught.value.message

    def test_too_many_tasks_are_refused(self, tmp_path: Path) -> None:
        entry = "  - {id: %s, task: '{{item}}', foreach: {glob: x}}\n"
        with pytest.raises(ConfigError, match="there are 1200 tasks, more than 1000"):
            read(tmp_path, "tasks:\n" + entry % "a" + entry % "b", ["x"] * 600)

    def test_unreadable_source_is_reported_with_its_line(self, tmp_path: Path) -> None:
        def expand(_: Source) -> list[str]:
            raise ConfigError("`x` is not there", key="option.invalid")

        with pytest.raises(ConfigError, match=r"flow.yaml:1: `tasks\[1\].foreach`: `x` is not"):
            read(tmp_path, GLOB % ("{{item}}", ""), expand=expand)


HOSTILE = [
    "a b",
    "$(touch x)",
    "'; rm -rf ~; '",
    "{{index}}",
    "{{item}}",
    "-rf",
    "*",
    "`id`",
    "\\{{v}}",
]


class TestTemplates:
    @pytest.mark.parametrize("item", HOSTILE)
    def test_item_is_inserted_unchanged(self, tmp_path: Path, item: str) -> None:
        reading = read(tmp_path, GLOB % ("<{{item}}|{{ items }}>", ""), [item])
        assert texts(reading) == {"m-1": f"<{item}|{item}>"}

    def test_quote_filter_quotes_for_a_shell(self, tmp_path: Path) -> None:
        text = GLOB % ("test {{items|quote}}", ", batch: 20, setup: 'ls {{ items | quote }}'")
        (task,) = read(tmp_path, text, HOSTILE).workflow.tasks
        assert shlex.split(task.task) == ["test", *HOSTILE]
        assert shlex.split((task.settings.setup or ("",))[0]) == ["ls", *HOSTILE]

    def test_templates_are_allowed_in_every_text(self, tmp_path: Path) -> None:
        text = """\
vars: {size: big, n: 3, yes: true}
tasks:
  - id: m
    task: "{{item}} {{n}} {{yes}}"
    model: "{{size}}"
    paths: ["{{item}}"]
    resources: "lock-{{index}}"
    checks: [{run: "test {{item|quote}}", name: "{{index}}"}]
    foreach: [src/a]
"""
        (task,) = read(tmp_path, text, variables={"size": "small"}).workflow.tasks
        assert (task.task, task.settings.model) == ("src/a 3 true", "small")
        assert (task.settings.paths, task.resources) == (("src/a",), ("lock-1",))
        assert task.settings.checks is not None
        assert (task.settings.checks[0].run, task.settings.checks[0].name) == ("test src/a", "1")

    @pytest.mark.parametrize(
        "text", ["{{ user.name }}", "{{#if a}}", "{{}}", "{ {a} }", "{{ a b }}", "${{ a.b }}"]
    )
    def test_templates_of_other_languages_are_unchanged(self, tmp_path: Path, text: str) -> None:
        assert texts(read(tmp_path, f"tasks: ['{text}']")) == {"task": text}

    def test_backslash_escapes_a_template(self, tmp_path: Path) -> None:
        assert texts(read(tmp_path, r"tasks: ['fix \{{title}}']")) == {"task": "fix {{title}}"}

    def test_templates_in_values_are_not_replaced(self, tmp_path: Path) -> None:
        reading = read(tmp_path, "tasks: ['{{a}} {{b}}']", variables={"a": "{{b}}", "b": "{{a}}"})
        assert texts(reading) == {"task": "{{b}} {{a}}"}


class TestUnquoted:
    TEXT = (
        "tasks: [{id: m, agent_cli: %s, task: 'x {{item%s}}', setup: 'ls {{items%s}}', "
        "foreach: {glob: x}}]"
    )

    @pytest.mark.parametrize(
        ("program", "task", "setup", "keys"),
        [
            ("shell", "", "|quote", ["task"]),
            ("shell", "|quote", "|quote", []),
            ("claude", "", "", ["setup[1]"]),
            ("shell", "", "", ["setup[1]", "task"]),
        ],
    )
    def test_unquoted_items_in_a_shell_cause_a_warning(
        self, tmp_path: Path, program: str, task: str, setup: str, keys: list[str]
    ) -> None:
        reading = read(tmp_path, self.TEXT % (program, task, setup), ["a"])
        assert sorted(reading.warnings) == [
            f"`tasks[1].{key}` puts items into a shell command without quotes, so an item may "
            "run as code: use the filter `|quote`"
            for key in keys
        ]

    def test_items_listed_in_the_file_are_trusted(self, tmp_path: Path) -> None:
        text = self.TEXT.replace("{glob: x}", "[a]") % ("shell", "", "")
        assert read(tmp_path, text).warnings == ()


PATHS = ["a.py", "src/a.py", "src/b.txt", "src/x/a.py", "src/x/y/.b.py", "docs/src/a.py"]


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["*.py"], ["a.py"]),
        (["src/*.py"], ["src/a.py"]),
        (["./src/*.py"], ["src/a.py"]),
        (["src/**/*.py"], ["src/a.py", "src/x/a.py", "src/x/y/.b.py"]),
        (["**/a.py"], ["a.py", "docs/src/a.py", "src/a.py", "src/x/a.py"]),
        (["src/**"], ["src/a.py", "src/b.txt", "src/x/a.py", "src/x/y/.b.py"]),
        (["**/**/y/**/*"], ["src/x/y/.b.py"]),
        (["src/?.t[xy]t", "a.py"], ["a.py", "src/b.txt"]),
        (["SRC/*"], []),
        (["src"], []),
    ],
)
def test_glob_matches_files(patterns: list[str], found: list[str]) -> None:
    assert matching([*PATHS, *PATHS], patterns) == found


class TestExpander:
    def expand(self, source: Source, content: bytes | None = None, printed: str = "") -> object:
        return expander(files=lambda: PATHS, read=lambda _: content, run=lambda _: printed)(source)

    def test_glob_is_expanded_from_the_commits_files(self) -> None:
        assert self.expand(Source("glob", ("*.py",))) == ["a.py"]

    def test_json_list_is_expanded(self) -> None:
        content = b'["a", 1, true, {"b": ["\xc3\xa9"]}]'
        expected = ["a", "1", "true", '{"b": ["é"]}']
        assert self.expand(Source("json", ("x",)), content) == expected

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (None, "the file `x` of `foreach` does not exist in the commit"),
            (b"{", "the file `x` of `foreach` is not JSON"),
            (b"\xff", "the file `x` of `foreach` is not JSON"),
            (b"[" * 100_000, "the file `x` of `foreach` is not JSON"),
            (b"{}", "the file `x` of `foreach` does not contain a list"),
        ],
    )
    def test_file_without_a_list_is_refused(self, content: bytes | None, told: str) -> None:
        with pytest.raises(ConfigError, match=told):
            self.expand(Source("json", ("x",)), content)

    def test_output_lines_of_a_command_are_expanded(self) -> None:
        source = Source("command", ("x",))
        assert self.expand(source, printed=" a b \n\n\r\nc") == ["a b", "c"]
        later = expander(files=lambda: PATHS, read=lambda _: None, run=None)
        assert later(source) is None


class TestPrintedItems:
    """Items in the output of a command."""

    @pytest.mark.parametrize(
        ("said", "items"),
        [
            ("a\r\n\n  b\t\nc\n", ["a", "b", "c"]),
            ("caf\u00e9.txt\n", ["caf\u00e9.txt"]),
            ("a\u2028b\nc\x0cd\n", ["a\u2028b", "c\x0cd"]),
            ("a b\0 c \0d\ne\0", ["a b", " c ", "d\ne"]),
            ("a\0\n", ["a"]),
            ("", []),
        ],
    )
    def test_lines_or_parts_between_nul_are_items(self, said: str, items: list[str]) -> None:
        expand = expander(files=list, read=lambda _: None, run=lambda _: said)
        assert expand(Source("command", ("x",))) == items


class TestBounds:
    """A file with too many parts is refused before anything is built from them."""

    @pytest.mark.parametrize(
        ("head", "part", "count", "said"),
        [
            ("tasks:\n", "- x\n", 50_000, "there are 50000 tasks, more than 1000"),
            ("tasks:\n", "- agent: web\n", 15_000, "there are 15000 tasks, more than 1000"),
            ("stages:\n", "- a\n", 50_000, "there are 50000 stages, more than 1000"),
            ("stages:\n- ", "- x\n  ", 40_000, "there are 40000 tasks, more than 1000"),
            ("- task: '{{item}}'\n  foreach:\n", "  - x\n", 36_000, "there are 36000 items"),
            ("- task: '{{item}}'\n  foreach:\n", "  - {}\n", 36_000, "there are 36000 items"),
        ],
    )
    def test_too_many_parts_are_refused_before_they_are_built(
        self, tmp_path: Path, head: str, part: str, count: int, said: str, monkeypatch
    ) -> None:
        def build(*_: object) -> None:
            raise AssertionError("something was built")

        for step in ("tasks_of", "edges_of", "variables_of"):
            monkeypatch.setattr(f"orchestrator.config.workflow.parsing.reader.{step}", build)
        monkeypatch.setattr(Mistakes, "validate", build)
        with pytest.raises(ConfigError) as caught:
            read(tmp_path, head + part * count)
        assert said in caught.value.message

    def test_no_task_is_built_beyond_the_limit(self, tmp_path: Path, monkeypatch) -> None:
        built = []
        made = Maker._task
        monkeypatch.setattr(Maker, "_task", lambda *given: built.append(1) or made(*given))
        entry = "  - {task: '{{item}}', foreach: {glob: x}}\n"
        with pytest.raises(ConfigError, match="there are 54000 tasks, more than 1000"):
            read(tmp_path, "tasks:\n" + entry * 60, ["x"] * 900)
        assert len(built) <= 1000
