"""Protections of workers that share files from each other."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

HANDOVER = "tests/workspace/test_artifacts.py"
SHARING = "tests/workspace/test_shared_files.py"
BULLETIN = "tests/workflow/test_shared_findings.py"
PROMPTS = "tests/workflow/test_reduce_prompt.py"


def sharing() -> Iterator[Protection]:
    """Return the limits on files that a worker hands over or reads from others."""
    yield from patches(
        "workspace/artifacts.py", (HANDOVER,),
        ("findings are not read from links or FIFOs", "with open_regular(path) as file:",
         'with path.open("rb") as file:'),
        ("size of findings limited",
         "return file.read(MOST_FINDINGS + _MARGIN)", "return file.read()"),
        ("long findings are truncated", "[:MOST_FINDINGS].decode", "[:].decode"),
        ("truncation does not hide secrets", "_MARGIN = 4096", "_MARGIN = 0"),
        ("secrets are redacted from findings", "redactor.data(data)", "data"),
        ("findings are sanitised", 'text = lines(redactor', "text = str(redactor"),
        ("artifacts are not read through a link",
         "is_directory = stat.S_ISDIR(handed.lstat().st_mode)",
         "is_directory = stat.S_ISDIR(handed.stat().st_mode)"),
        ("links and special files are removed from artifacts",
         "elif not stat.S_ISREG(kind):", "elif False:"),
        ("types of artifacts are read without following links",
         "entry.stat(follow_symlinks=False).st_mode",
         "entry.stat().st_mode"),
        ("artifacts with long paths are removed",
         "if len(os.fsencode(path)) > _LONGEST:", "if False:"),
        ("set-user-ID bits are removed from artifacts",
         "path.chmod(0o755 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR "
         "else 0o644)", "path.chmod(0o7777 & (mode | 0o700))"),
        ("number of listed artifacts limited", "found[:MOST_LISTED]", "found"),
        ("collected artifacts are not replaced",
         "if place.is_dir() and not kept.exists():", "if place.is_dir():"),
    )  # fmt: skip
    yield from patches(
        "workspace/shared_files.py", (SHARING,),
        ("shared files read-only", "target=SHARED, read_only=True",
         "target=SHARED, read_only=False"),
        ("inputs read-only", "target=INPUTS, read_only=True", "target=INPUTS, read_only=False"),
        ("workers without a workflow share no names",
         "        if self._title is None:\n            return emit\n", ""),
        ("workers without a workflow see no shared files",
         "return self._title is not None or self._given is not None", "return True"),
        ("secrets are redacted from the context", "redactor.text(given).encode", "given.encode"),
        ("secrets are redacted from inputs",
         "replace(entry, result=self._redactor.model(entry.result))", "entry"),
        ("size of diffs limited", "limit=MOST_DIFF + 1)", "limit=1 << 40)",
         "the file is truncated anyway, and no test measures the memory"),
        ("long diffs are truncated", "return found[:MOST_DIFF] + cut.encode()", "return found"),
        ("size of the context limited", "read_limited(top / file, most=MOST_GIVEN)",
         "read_limited(top / file, most=1 << 30)"),
        ("context is not read from a FIFO", "read_limited(top / file, most=MOST_GIVEN)",
         "(top / file).read_bytes()"),
    )  # fmt: skip
    yield from patches(
        "workspace/mounts.py",
        (SHARING,),
        ("artifacts count against the disk limit", ", *_growing(self.shared)", ""),
    )  # fmt: skip
    yield from patches(
        "worker/checks.py", (SHARING,),
        ("checks see no shared files", "caches=caches, shared=())", "caches=caches)"),
    )  # fmt: skip
    yield from patches(
        "workflow/shared_findings.py", (BULLETIN,),
        ("headings in findings are lowered", r'_HEADING.sub(r"\1####", lines(findings).strip())',
         "lines(findings).strip()"),
        ("Markdown that affects other lines is fenced",
         "if not _REACHES.search(text):", "if True:"),
        ("fence is longer than any in the text", '"~" * max(3, longest + 1)', '"~" * 3'),
        ("total size of findings limited", "if room < 0:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "scheduling/dependencies.py", ("tests/scheduling/test_dependencies.py",),
        ("results are not inserted into a command at its start",
         'if worker.agent.name == "shell":', "if False:",
         "such tasks are already refused when the workflow is read"),
    )  # fmt: skip
    yield from patches(
        "workflow/planning.py",
        ("tests/workflow/test_settings_check.py",),
        ("no results in a command", 'config.agent_cli == "shell" and task.results_at', "False"),
    )  # fmt: skip
    yield from patches(
        "workflow/parsing/variables.py", ("tests/workflow/parsing/test_diagnostics.py",),
        ("results in a workflow's commands refused",
         'if program is not None and program.value == "shell":', "if False:"),
    )  # fmt: skip
    yield from patches(
        "workflow/reduce_prompt.py", (PROMPTS,),
        ("inserted results are not expanded again", "return _PLACE.sub(lambda match",
         "task = _PLACE.sub(lambda match: text if match else '', task)\n"
         "    return _PLACE.sub(lambda match"),
        ("text that looks like a template is not replaced", "next(numbers) in places", "True"),
        ("size of inserted results limited",
         "return len(candidate.encode()) <= room", "return True"),
        ("summaries are sanitised", 'return lines(result.summary or result.message or "")',
         'return result.summary or result.message or ""'),
    )  # fmt: skip
