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
        ("findings through no link and from no FIFO", "with open_regular(path) as file:",
         'with path.open("rb") as file:'),
        ("findings bounded", "return file.read(MOST_FINDINGS + _MARGIN)", "return file.read()"),
        ("findings cut", "[:MOST_FINDINGS].decode", "[:].decode"),
        ("no secret cut in half", "_MARGIN = 4096", "_MARGIN = 0"),
        ("findings without secrets", "redactor.data(data)", "data"),
        ("findings without control characters", 'text = lines(redactor', "text = str(redactor"),
        ("artifacts through no link", "is_directory = stat.S_ISDIR(handed.lstat().st_mode)",
         "is_directory = stat.S_ISDIR(handed.stat().st_mode)"),
        ("no link or special file among them", "elif not stat.S_ISREG(kind):", "elif False:"),
        ("kinds of files through no link", "entry.stat(follow_symlinks=False).st_mode",
         "entry.stat().st_mode"),
        ("no path too long", "if len(os.fsencode(path)) > _LONGEST:", "if False:"),
        ("no set-user-ID files", "path.chmod(0o755 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR "
         "else 0o644)", "path.chmod(0o7777 & (mode | 0o700))"),
        ("a list that is bounded", "found[:MOST_LISTED]", "found"),
        ("what was taken stays", "if place.is_dir() and not kept.exists():", "if place.is_dir():"),
    )  # fmt: skip
    yield from patches(
        "workspace/shared_files.py", (SHARING,),
        ("shared files read-only", "target=SHARED, read_only=True",
         "target=SHARED, read_only=False"),
        ("inputs read-only", "target=INPUTS, read_only=True", "target=INPUTS, read_only=False"),
        ("workers of no workflow apart",
         "        if self._title is None:\n            return emit\n", ""),
        ("workers of no workflow see no shared files",
         "return self._title is not None or self._given is not None", "return True"),
        ("context without secrets", "redactor.text(given).encode", "given.encode"),
        ("inputs without secrets", "replace(one, result=self._redactor.model(one.result))", "one"),
        ("diffs bounded", "limit=MOST_DIFF + 1)", "limit=1 << 40)",
         "the file is cut all the same, and what it takes in memory no test measures"),
        ("a diff is cut", "return found[:MOST_DIFF] + cut.encode()", "return found"),
        ("a context bounded", "read_limited(top / file, most=MOST_GIVEN)",
         "read_limited(top / file, most=1 << 30)"),
        ("a context from no FIFO", "read_limited(top / file, most=MOST_GIVEN)",
         "(top / file).read_bytes()"),
    )  # fmt: skip
    yield from patches(
        "workspace/mounts.py",
        (SHARING,),
        ("what is handed over counts as written", ", *_growing(self.shared)", ""),
    )  # fmt: skip
    yield from patches(
        "worker/checks.py", (SHARING,),
        ("checks see nothing that is shared", "caches=caches, shared=())", "caches=caches)"),
    )  # fmt: skip
    yield from patches(
        "workflow/shared_findings.py", (BULLETIN,),
        ("no forged heading", r'_HEADING.sub(r"\1####", lines(findings).strip())',
         "lines(findings).strip()"),
        ("findings reach nothing else", "if not _REACHES.search(text):", "if True:"),
        ("a fence that nothing ends", '"~" * max(3, longest + 1)', '"~" * 3'),
        ("all findings bounded", "if room < 0:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "scheduling/dependencies.py", ("tests/scheduling/test_dependencies.py",),
        ("no results in a command at its start", 'if worker.agent.name == "shell":', "if False:",
         "refused before: no task that is a command has a place for them"),
    )  # fmt: skip
    yield from patches(
        "workflow/checks.py",
        ("tests/workflow/test_checks.py",),
        ("no results in a command", 'config.agent_cli == "shell" and task.results_at', "False"),
    )  # fmt: skip
    yield from patches(
        "workflow/parsing/variables.py", ("tests/workflow/parsing/test_diagnostics.py",),
        ("no results in a file's commands", "if _is_command(task, defaults):", "if False:"),
    )  # fmt: skip
    yield from patches(
        "workflow/reduce_prompt.py", (PROMPTS,),
        ("results are looked at once", "return _PLACE.sub(lambda match",
         "task = _PLACE.sub(lambda match: text if match else '', task)\n"
         "    return _PLACE.sub(lambda match"),
        ("text that looks like a template stays", "next(numbers) in places", "True"),
        ("results bounded", "return len(candidate.encode()) <= room", "return True"),
        ("summaries steer no terminal", 'return lines(result.summary or result.message or "")',
         'return result.summary or result.message or ""'),
    )  # fmt: skip
