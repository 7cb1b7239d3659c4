"""Protections from a repository's configuration file, and checks before a run starts."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

SETTINGS = "tests/config"
STAGES = "tests/worker/test_stages.py"
PREFLIGHT = "tests/runs/test_preflight.py"


def settings() -> Iterator[Protection]:
    """Return the restrictions of a configuration file that the user did not name."""
    named = "for name in ({})"
    run_keys, container_keys = ("api_base", "context", "image", "include_uncommitted"), (
        "copy", "env", "runtime", "secrets",
    )  # fmt: skip
    who_and_what = ("agent_cli", "base", "tasks")
    allowed = ("allow", "check_allow", "setup_allow")
    for keys in (run_keys, who_and_what, allowed, container_keys):
        whole = named.format(", ".join(f'"{key}"' for key in keys))
        for key in keys:
            rest = named.format(", ".join(f'"{other}"' for other in keys if other != key))
            yield from patches(
                "config/untrusted_file.py",
                (SETTINGS,),
                (f"{key} of a named file alone", whole, rest),
            )
    yield from patches(
        "config/untrusted_file.py", (SETTINGS,),
        ("limits not above what holds",
         '    *(("limits", name) for name in Limits.model_fields),\n', ""),
        ("network not more open", '("network", "read_only", "history")),',
         '("read_only", "history")),'),
        ("history not more open", '("network", "read_only", "history")),',
         '("network", "read_only")),'),
        ("looking is not writing", '("network", "read_only", "history")),',
         '("network", "history")),'),
        ("the user's preset bounds the time", "BOUNDED if without.preset is None else (",
         "BOUNDED if True else ("),
        ("no time is the longest", '"timeout_per_worker": lambda seconds: seconds or inf',
         '"timeout_per_worker": lambda seconds: seconds or 0'),
        ("no network opened for setup",
         '"setup_network": lambda network: _OPEN.index(network or "none")',
         '"setup_network": lambda network: 0'),
        ("no network opened for checks", '"check_network": _OPEN.index',
         '"check_network": lambda network: 0'),
        ("no preset that gives more", "by_field.get(field, by_field.get(_PRESET))",
         "by_field.get(field)"),
    )  # fmt: skip
    yield from patches(
        "config/loading.py", (SETTINGS,),
        ("keys of a found file refused", "[] if named else out_of_bounds(file_layer)", "[]"),
        ("a found file bounded", "_merged(layers) if named else _bounded(layers, path)",
         "_merged(layers)"),
        ("commands of a found file closed", 'update={"closed_stages": closed}', "update={}"),
        ("no link of a repository followed", "None if named else top", "None"),
    )  # fmt: skip
    yield from patches(
        "config/document.py", (SETTINGS,),
        ("no folder that is a link followed", "(path, *(below / folder for folder in folders))",
         "(path,)"),
    )  # fmt: skip
    yield from patches(
        "worker/container_specs.py", (STAGES,),
        ("agents' keys for agents alone", "            **command.default_env,\n"
         "            **command.env,\n            **({} if",
         "            **command.default_env,\n            **worker.settings.inherited_env,\n"
         "            **command.env,\n            **({} if"),
        ("no variables for a found file's commands", "({} if job.closed else config.isolation.env)",
         "config.isolation.env"),
        ("no base URL for a found file's commands",
         'config.model_copy(update={"api_base": None}) if job.closed else config', "config"),
    )  # fmt: skip
    yield from patches(
        "worker/job.py", (STAGES,),
        ("no secrets for a found file's commands",
         "Secrets(values={}, root=None) if self.job.closed else run.request.secrets",
         "run.request.secrets"),
    )  # fmt: skip
    yield from patches(
        "config/run.py",
        (SETTINGS, STAGES),
        ("no network for a found file's setup",
         '"none" if "setup" in self.closed_stages else self.isolation.network',
         "self.isolation.network"),
        ("no network for a found file's teardown",
         '"none" if "teardown" in self.closed_stages else self.isolation.network',
         "self.isolation.network"),
    )  # fmt: skip
    yield from patches(
        "workflow/planning.py",
        ("tests/runs/test_workflows.py",),
        ("a private workflow closes every network", 'if workflow.network == "none":', "if False:"),
    )  # fmt: skip
    yield from patches(
        "workflow/parsing/diagnostics.py",
        ("tests/workflow/parsing/test_diagnostics.py",),
        ("few suggestions for a workflow", "len(self._found) < MOST_SUGGESTIONS", "True"),
    )
    yield from patches(
        "config/sources.py",
        ("tests/config/test_sources.py",),
        ("few suggestions for a file", "len(self._problems) < MOST_SUGGESTIONS", "True"),
    )
    yield from patches(
        "cli/workflow_run.py", ("tests/cli/commands/test_spec.py",),
        ("a private workflow opened by no option",
         "        _check_networks(configured, workflow)",
         "        pass"),
        ("no task on a network that an option closes",
         "if task.settings.network in wider:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "runs/cache_warming.py", ("tests/workspace/test_caches.py",),
        ("no found file's setup on the internet", 'if "setup" in config.closed_stages:',
         "if False:"),
    )  # fmt: skip


def preflight() -> Iterator[Protection]:
    """Return the checks before a run starts."""
    yield from patches(
        "runs/preflight.py",
        (PREFLIGHT,),
        ("no run without a key",
         "        if missing is not None:\n            of_task.add(missing)\n", ""),
    )  # fmt: skip
    yield from patches(
        "runs/problems.py",
        (PREFLIGHT,),
        ("a check that finds a problem stops the run",
         "            self.add(error)\n            return Attempt()\n",
         "            return Attempt()\n"),
    )  # fmt: skip
    yield from patches(
        "runs/machine_check.py",
        (PREFLIGHT,),
        ("no memory beyond the machine's", "if memory > features.memory and", "if False and"),
        ("no CPUs beyond the machine's", "cpus > features.cpus:", "False:"),
        ("a preset is no wish", "and memory != preset", ""),
        ("crowding told", "    if config.auto_workers or config.workers <= fit:\n",
         "    if True:\n"),
    )  # fmt: skip


def doors() -> Iterator[Protection]:
    """Return the checks of texts and files from outside."""
    yield from patches(
        "cli/app.py", ("tests/cli/test_input_decoding.py",),
        ("arguments that are no text", "if not is_text(argument):", "if False:"),
        ("a locale that knows no letters", "    _restart_in_utf8_mode()\n", ""),
    )  # fmt: skip
    yield from patches(
        "git/command.py", ("tests/cli/test_input_decoding.py",),
        ("paths that are no text", "if not is_text(str(path)):", "if False:"),
    )  # fmt: skip
    yield from patches(
        "config/document.py", ("tests/cli/test_input_decoding.py", "tests/workflow"),
        ("settings from no FIFO",
         'read_limited(path, most=MAX_BYTES, follow=True).decode("utf-8-sig")',
         'path.read_bytes().decode("utf-8-sig")'),
        ("numbers as they are spelled", "self if self.written is None else", "self if True else"),
    )  # fmt: skip
    yield from patches(
        "agents/checks.py",
        ("tests/agents/test_long_task.py", "tests/cli/test_input_decoding.py"),
        ("arguments that a program can take", "if max(words) > LONGEST_WORD:", "if False:"),
        ("variables that a program can take", "variables[longest] > LONGEST_WORD:", "False:"),
        ("a command line that a program can take",
         "if sum(words) + sum(variables.values()) > LONGEST_LINE:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "runs/recorder.py",
        ("tests/runs/test_runner.py -k observer",),
        ("a callback that raises", "except Exception as error:  # noqa: BLE001 - the caller's own",
         "except ZeroDivisionError as error:  # the caller's own"),
    )  # fmt: skip
    yield from patches(
        "engine/images/project.py", ("tests/engine/images/test_project.py",),
        ("no file that a link leads to outside",
         "return not path.resolve().is_relative_to(folder.resolve())", "return False"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/images.py", ("tests/engine/images/test_project.py",),
        ("no linked list of what is ignored", "read_limited(listed, most=_LARGEST_IGNORE)",
         "read_limited(listed, most=_LARGEST_IGNORE, follow=True)"),
    )  # fmt: skip
    yield from patches(
        "config/run.py", ("tests/config/test_untrusted_file.py -k HostileFile",),
        ("no model that is an option", 'if name.lstrip().startswith("-"):', "if False:"),
        ("deadlines that clocks know",
         "min(self.timeout_per_worker, _LONGEST_TIMEOUT)", "self.timeout_per_worker"),
    )  # fmt: skip
    yield from patches(
        "cli/commands/image.py", ("tests/cli/output/test_ci.py",),
        ("a job's log is no terminal", "elif is_redrawn(sys.stderr):",
         "elif Console(stderr=True).is_terminal:"),
    )  # fmt: skip
    yield from patches(
        "cli/output/messages.py", ("tests/cli/output/test_ci.py",),
        ("errors steer no terminal",
         'tell(lines(f"error: {message}" + (f"\\n\\nhint: {hint}" if hint else "")))',
         'tell(f"error: {message}" + (f"\\n\\nhint: {hint}" if hint else ""))'),
    )  # fmt: skip
