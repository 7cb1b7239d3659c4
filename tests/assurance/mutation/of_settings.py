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
    allowed = ("allow", "allow_sets", "check_allow", "setup_allow")
    for keys in (run_keys, who_and_what, allowed, container_keys):
        whole = named.format(", ".join(f'"{key}"' for key in keys))
        for key in keys:
            rest = named.format(", ".join(f'"{other}"' for other in keys if other != key))
            yield from patches(
                "config/untrusted_file.py",
                (SETTINGS,),
                (f"{key} only from a named file", whole, rest),
            )
    yield from patches(
        "config/untrusted_file.py", (SETTINGS,),
        ("discovered file cannot raise limits",
         '    *(("limits", name) for name in Limits.model_fields),\n', ""),
        ("discovered file cannot open the network", '("network", "read_only", "history", "keys")),',
         '("read_only", "history", "keys")),'),
        ("discovered file cannot extend the history",
         '("network", "read_only", "history", "keys")),', '("network", "read_only", "keys")),'),
        ("discovered file cannot make worktrees writable",
         '("network", "read_only", "history", "keys")),', '("network", "history", "keys")),'),
        ("discovered file cannot give keys to workers",
         '("network", "read_only", "history", "keys")),', '("network", "read_only", "history")),'),
        ("user's preset limits the timeout of a file", "BOUNDED if without.preset is None else (",
         "BOUNDED if True else ("),
        ("timeout 0 counts as the longest", '"timeout_per_worker": lambda seconds: seconds or inf',
         '"timeout_per_worker": lambda seconds: seconds or 0'),
        ("discovered file cannot open setup's network",
         '"setup_network": lambda network: _OPEN.index(network or "none")',
         '"setup_network": lambda network: 0'),
        ("discovered file cannot open the checks' network", '"check_network": _OPEN.index',
         '"check_network": lambda network: 0'),
        ("discovered file cannot name a looser preset",
         "by_field.get(field, by_field.get(_PRESET))",
         "by_field.get(field)"),
    )  # fmt: skip
    yield from patches(
        "config/loading.py", (SETTINGS,),
        ("forbidden keys of a discovered file refused",
         "[] if named else out_of_bounds(file_layer)", "[]"),
        ("discovered file is restricted",
         "_merge(layers) if named else _merge_found_file(layers, path)",
         "_merge(layers)"),
        ("commands of a discovered file are confined",
         'update={"closed_stages": closed}', "update={}"),
        ("linked configuration file refused", "None if named else top", "None"),
    )  # fmt: skip
    yield from patches(
        "config/document.py", (SETTINGS,),
        ("linked configuration directory refused",
         "(path, *(below / folder for folder in folders))",
         "(path,)"),
    )  # fmt: skip
    yield from patches(
        "worker/container_specs.py", (STAGES,),
        ("API keys reach only the agent", "            **command.default_env,\n"
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
    )  # fmt: skip
    yield from patches(
        "cli/workflow_run.py", ("tests/config/test_bounds.py",),
        ("no task beyond what was typed",
         "        _check_bounds(configured, reading, tasks)", "        pass"),
    )  # fmt: skip
    yield from patches(
        "config/loading.py", ("tests/config/test_bounds.py",),
        ("no file beyond a preset that was typed",
         "wider = _beyond_presets(config, layers)", "wider = []"),
    )  # fmt: skip
    yield from patches(
        "config/bounds.py", ("tests/config/test_bounds.py",),
        ("a preset bounds hosts and secrets", 'if name == "untrusted":', "if False:"),
        ("no limit is more than any limit", "(value or inf) > (typed or inf)",
         "(value or 0) > (typed or 0)"),
        ("services are bounded by a preset",
         "if field in self.of_preset and self._has_larger_service",
         "if False and self._has_larger_service"),
        ("typed sets of hosts are those of the machine",
         "if field in self.of_preset and self._redefines_sets",
         "if False and self._redefines_sets"),
        ("no program of a file runs under the preset `untrusted`",
         '"git_read")),\n    TRIGGER_FIELDS["notify"],', '"git_read")),'),
        ("paths are compared as directories", 'folder.rstrip("/") + "/"', "folder"),
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
        ("missing API key refused",
         "        if missing is not None:\n            of_task.add(missing)\n", ""),
    )  # fmt: skip
    yield from patches(
        "runs/problems.py",
        (PREFLIGHT,),
        ("problem found by a check prevents the run",
         "            self.add(error)\n            return Attempt()\n",
         "            return Attempt()\n"),
    )  # fmt: skip
    yield from patches(
        "config/sizing.py",
        (PREFLIGHT,),
        ("preset's values do not count as requested", "(preset, Limits().memory)",
         "(Limits().memory,)"),
    )  # fmt: skip
    yield from patches(
        "runs/machine_check.py",
        (PREFLIGHT,),
        ("memory above the machine's refused", "if memory > features.memory and", "if False and"),
        ("CPUs above the machine's refused", "cpus > features.cpus:", "False:"),
        ("crowded machine is reported", "    if config.auto_workers or config.workers <= fit:\n",
         "    if True:\n"),
    )  # fmt: skip


def doors() -> Iterator[Protection]:
    """Return the checks of texts and files from outside."""
    yield from patches(
        "cli/app.py", ("tests/cli/test_input_decoding.py",),
        ("arguments must be UTF-8", "if not is_text(argument):", "if False:"),
        ("UTF-8 mode in any locale", "    _restart_in_utf8_mode()\n", ""),
    )  # fmt: skip
    yield from patches(
        "git/command.py", ("tests/cli/test_input_decoding.py",),
        ("paths must be UTF-8", "if not is_text(str(path)):", "if False:"),
    )  # fmt: skip
    yield from patches(
        "config/document.py", ("tests/cli/test_input_decoding.py", "tests/workflow"),
        ("settings are not read from a FIFO",
         "_read_pipe(path, pipe) if pipe else read_limited(path, most=MAX_BYTES, follow=True)",
         "path.read_bytes()"),
    )  # fmt: skip
    yield from patches(
        "config/sources.py", ("tests/config/test_sources.py",),
        ("a line of a file of variables is not shown",
         'f"`{name}`" if where == _OPTION else "the name on this line"', 'f"`{name}`"'),
    )  # fmt: skip
    yield from patches(
        "config/yaml_document.py", ("tests/config/test_document.py",),
        ("aliases repeat a limited number of values", "self._values > _MOST_VALUES or ", ""),
    )  # fmt: skip
    yield from patches(
        "agents/shell.py", ("tests/agents/test_shell.py",),
        ("only reports of a command spend a budget",
         "if not _is_report(said):", "if said is None:"),
    )  # fmt: skip
    yield from patches(
        "config/node.py", ("tests/cli/test_input_decoding.py", "tests/workflow"),
        ("numbers keep their spelling", "self if self.written is None else", "self if True else"),
    )  # fmt: skip
    yield from patches(
        "agents/settings_check.py",
        ("tests/agents/test_long_task.py", "tests/cli/test_input_decoding.py"),
        ("length of arguments limited", "if max(words) > LONGEST_WORD:", "if False:"),
        ("length of variables limited", "variables[longest] > LONGEST_WORD:", "False:"),
        ("length of the command line limited",
         "if sum(words) + sum(variables.values()) > LONGEST_LINE:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "runs/recorder.py",
        ("tests/runs/test_runner.py -k failing_callback",),
        ("raising callback does not stop a run",
         "except Exception as error:  # noqa: BLE001 - the caller's own",
         "except ZeroDivisionError as error:  # the caller's own"),
    )  # fmt: skip
    yield from patches(
        "engine/images/project.py", ("tests/engine/images/test_project.py",),
        ("links out of the project are not followed",
         "return not path.resolve().is_relative_to(folder.resolve())", "return False"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/images.py", ("tests/engine/images/test_project.py",),
        ("linked .dockerignore refused", "read_limited(listed, most=_LARGEST_IGNORE)",
         "read_limited(listed, most=_LARGEST_IGNORE, follow=True)"),
    )  # fmt: skip
    yield from patches(
        "config/run.py", ("tests/config/test_untrusted_file.py -k HostileFile",),
        ("model name that looks like an option refused",
         'if name.lstrip().startswith("-"):', "if False:"),
    )  # fmt: skip
    yield from patches(
        "config/values.py", ("tests/config/test_ranges.py", "tests/config/test_untrusted_file.py"),
        ("longest timeout limited",
         "Seconds = Annotated[float, Field(ge=0, le=LONGEST)]",
         "Seconds = Annotated[float, Field(ge=0)]"),
        ("smallest CPU limit", "Field(ge=0.01, le=1024)", "Field(gt=0, le=1024)"),
    )  # fmt: skip
    yield from patches(
        "cli/commands/image.py", ("tests/cli/output/test_ci.py",),
        ("job's log does not count as a terminal", "elif is_redrawn(sys.stderr):",
         "elif Console(stderr=True).is_terminal:"),
    )  # fmt: skip
    yield from patches(
        "cli/output/messages.py", ("tests/cli/output/test_ci.py",),
        ("error messages are sanitised",
         'tell(lines(f"error: {message}" + (f"\\n\\nhint: {hint}" if hint else "")))',
         'tell(f"error: {message}" + (f"\\n\\nhint: {hint}" if hint else ""))'),
    )  # fmt: skip
