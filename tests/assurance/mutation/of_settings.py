"""Protections from a repository's configuration file, and checks before a run starts."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import (
    Always,
    Give,
    Instead,
    Never,
    Remove,
    Replace,
    Unwrap,
    Without,
)

SETTINGS = "tests/config"
STAGES = "tests/worker/test_stages.py"
PREFLIGHT = "tests/runs/test_preflight.py"


def settings() -> Iterator[Protection]:
    """Return the restrictions of a configuration file that the user did not name."""
    keys = (
        "api_base", "context", "image", "include_uncommitted", "agent_cli", "base", "tasks",
        "allow", "allow_sets", "check_allow", "setup_allow", "copy", "env", "runtime", "secrets",
        "allow_unenforced", "company", "prices", "agent_config",
    )  # fmt: skip
    yield from marked(
        (SETTINGS,),
        *((f"{key} only from a named file", Without(repr(key))) for key in keys),
        at="only-from-named-file",
    )
    yield from marked(
        (SETTINGS,),
        ("discovered file cannot raise limits",
         Without("*(('limits', name) for name in Limits.model_fields)",
                 at="bounds-of-discovered-files")),
        ("discovered file cannot open the network",
         Without("'network'", at="bounds-of-discovered-files")),
        ("discovered file cannot extend the history",
         Without("'history'", at="bounds-of-discovered-files")),
        ("discovered file cannot make worktrees writable",
         Without("'read_only'", at="bounds-of-discovered-files")),
        ("discovered file cannot give keys to workers",
         Without("'keys'", at="bounds-of-discovered-files")),
        ("timeout 0 counts as the longest",
         Give("'timeout_per_worker': lambda seconds: seconds or 0",
              at="reach-of-discovered-files")),
        ("discovered file cannot open setup's network",
         Give("'setup_network': lambda network: 0", at="reach-of-discovered-files")),
        ("discovered file cannot open the checks' network",
         Give("'check_network': lambda network: 0", at="reach-of-discovered-files")),
        ("discovered file cannot name a looser preset", Without("by_field.get(_PRESET)")),
    )  # fmt: skip
    yield from marked(
        ("tests/config/test_certificates.py",),
        ("only valid certificates are passed on", Without("problem != _DAMAGED")),
        ("nothing behind a certificate is passed on", Instead("data")),
    )  # fmt: skip
    yield from marked(
        (SETTINGS,),
        ("forbidden keys of a discovered file refused", Instead("[]")),
        ("discovered file is restricted", Instead("_merge(layers)")),
        ("commands of a discovered file are confined", Give("closed_stages=()")),
        ("linked configuration file refused", Instead("None")),
    )  # fmt: skip
    yield from marked(
        (SETTINGS,),
        ("linked configuration directory refused",
         Without("*(below / folder for folder in folders)")),
    )  # fmt: skip
    yield from marked(
        (STAGES,),
        ("API keys reach only the agent",
         Replace("command.default_env",
                 "{**command.default_env, **worker.settings.inherited_env}")),
        ("no variables for a found file's commands", Never("job.closed")),
        ("no base URL for a found file's commands", Instead("config")),
    )  # fmt: skip
    yield from marked(
        (STAGES,),
        ("no secrets for a found file's commands", Instead("every")),
        ("no secrets in memory for a found file's commands", Instead("run.request.secrets")),
    )  # fmt: skip
    yield from marked(
        (SETTINGS, STAGES),
        ("no network for a found file's setup", Instead("self.isolation.network")),
        ("no network for a found file's teardown", Instead("self.isolation.network")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_workflows.py",),
        ("a private workflow closes every network", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/config/workflow/parsing/test_diagnostics.py",),
        ("few suggestions for a workflow", Always("len(self._found) < MOST_SUGGESTIONS")),
    )  # fmt: skip
    yield from marked(
        ("tests/config/test_sources.py",),
        ("few suggestions for a file", Always("len(self._problems) < MOST_SUGGESTIONS")),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/cli/commands/test_spec.py",),
        ("a private workflow opened by no option", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/config/test_bounds.py",),
        ("no task beyond what was typed", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/config/test_bounds.py",),
        ("no file beyond a preset that was typed", Instead("[]")),
    )  # fmt: skip
    yield from marked(
        ("tests/config/test_bounds.py",),
        ("a preset bounds hosts and secrets", Never()),
        ("no limit is more than any limit", Instead("(value or 0) > (typed or 0)")),
        ("services are bounded by a preset", Never("field in self.of_preset")),
        ("typed sets of hosts are those of the machine", Never("field in self.of_preset")),
        ("no program of a file runs under the preset `untrusted`",
         Without("TRIGGER_FIELDS['notify']")),
        ("paths are compared as directories", Replace("folder.rstrip('/') + '/'", "folder")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_caches.py",),
        ("no found file's setup on the internet", Never()),
    )  # fmt: skip


def preflight() -> Iterator[Protection]:
    """Return the checks before a run starts."""
    yield from marked(
        (PREFLIGHT,),
        ("missing API key refused", Remove()),
    )  # fmt: skip
    yield from marked(
        (PREFLIGHT,),
        ("default runtime is checked as if it were named",
         Replace("features.default_runtime", "''")),
    )  # fmt: skip
    yield from marked(
        (PREFLIGHT,),
        ("problem found by a check prevents the run", Remove()),
    )  # fmt: skip
    yield from marked(
        (PREFLIGHT,),
        ("preset's values do not count as requested", Without("preset")),
    )  # fmt: skip
    yield from marked(
        (PREFLIGHT,),
        ("memory above the machine's refused", Never("memory > features.memory")),
        ("CPUs above the machine's refused", Never("cpus > features.cpus")),
        ("crowded machine is reported", Always()),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_enforcement.py",),
        ("limit that is not enforced refuses the run", Never()),
        ("only enforced limits are remembered", Without("proven.is_sound")),
        ("what is remembered is of this engine and start", Always("found.key == key")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/test_place.py",),
        ("streams refuse what they cannot do", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/engine/test_limits_probe.py",),
        ("answers about limits are checked", Without("strict")),
        ("answers about limits are short", Never()),
        ("no answer about limits is an error", Never()),
        ("missing limit of memory is noticed", Instead("True")),
        ("limit at which the container ends is enforced", Remove()),
    )  # fmt: skip


def doors() -> Iterator[Protection]:
    """Return the checks of texts and files from outside."""
    yield from marked(
        ("tests/faces/cli/test_input_decoding.py",),
        ("arguments must be UTF-8", Never()),
        ("UTF-8 mode in any locale", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/cli/test_input_decoding.py",),
        ("paths must be UTF-8", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/cli/test_input_decoding.py", "tests/config/workflow"),
        ("settings are not read from a FIFO", Instead("path.read_bytes()")),
    )  # fmt: skip
    yield from marked(
        ("tests/config/test_sources.py",),
        ("a line of a file of variables is not shown", Instead("f'`{name}`'")),
    )  # fmt: skip
    yield from marked(
        ("tests/config/test_document.py",),
        ("aliases repeat a limited number of values", Without("self._values > _MOST_VALUES")),
    )  # fmt: skip
    yield from marked(
        ("tests/agents/test_shell.py",),
        ("only reports of a command spend a budget", Instead("said is None")),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/cli/test_input_decoding.py", "tests/config/workflow"),
        ("numbers keep their spelling", Always("self.written is None")),
    )  # fmt: skip
    yield from marked(
        ("tests/agents/test_long_task.py", "tests/faces/cli/test_input_decoding.py"),
        ("length of arguments limited", Never()),
        ("length of variables limited", Never("variables[longest] > LONGEST_WORD")),
        ("length of the command line limited", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_runner.py -k failing_callback",),
        ("raising callback does not stop a run", Instead("ZeroDivisionError")),
    )  # fmt: skip
    yield from marked(
        ("tests/engine/images/test_project.py",),
        ("links out of the project are not followed", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/engine/images/test_project.py",),
        ("linked .dockerignore refused",
         Instead("read_limited(listed, most=_LARGEST_IGNORE, follow=True)")),
    )  # fmt: skip
    yield from marked(
        ("tests/config/test_untrusted_file.py -k HostileFile",),
        ("model name that looks like an option refused", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/config/test_ranges.py", "tests/config/test_untrusted_file.py"),
        ("longest timeout limited", Without("le")),
        ("smallest CPU limit", Replace("ge=0.01", "gt=0")),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/cli/output/test_ci.py",),
        ("job's log does not count as a terminal", Instead("Console(stderr=True).is_terminal")),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/cli/output/test_ci.py",),
        ("error messages are sanitised", Unwrap("lines")),
    )  # fmt: skip
