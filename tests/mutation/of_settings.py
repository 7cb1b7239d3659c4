"""What a repository's own configuration file may not do, and what is told before a run starts."""

from collections.abc import Iterator

from tests.mutation.protection import Protection, patches

SETTINGS = "tests/unit/test_settings.py"
PREFLIGHT = "tests/unit/test_preflight.py"


def settings() -> Iterator[Protection]:
    """Give what a file that nobody named is kept from."""
    named = "for name in ({})"
    run_keys, container_keys = ("api_base", "context", "image", "include_uncommitted"), (
        "allow", "copy", "env", "runtime", "secrets",
    )  # fmt: skip
    for keys in (run_keys, container_keys):
        whole = named.format(", ".join(f'"{key}"' for key in keys))
        for key in keys:
            rest = named.format(", ".join(f'"{other}"' for other in keys if other != key))
            yield from patches(
                "settings/guest.py", (SETTINGS,), (f"{key} of a named file alone", whole, rest)
            )
    yield from patches(
        "settings/guest.py", (SETTINGS,),
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
        ("no preset that gives more", "by_field.get(f, by_field.get(_PRESET))",
         "by_field.get(f)"),
    )  # fmt: skip
    yield from patches(
        "settings/__init__.py", (SETTINGS,),
        ("keys of a found file refused", "[] if named else out_of_bounds(file_layer)", "[]"),
        ("a found file bounded", "_merged(layers) if named else _bounded(layers, path)",
         "_merged(layers)"),
    )  # fmt: skip


def preflight() -> Iterator[Protection]:
    """Give what stops a run before it starts."""
    yield from patches(
        "preflight.py", (PREFLIGHT,),
        ("no run without a key", "    if missing is not None:\n        raise missing\n", ""),
        ("no memory beyond the machine's", "if memory > features.memory and", "if False and"),
        ("no CPUs beyond the machine's", "cpus > features.cpus:", "False:"),
        ("a preset is no wish", "and memory != preset", ""),
        ("crowding told", "    if config.workers <= fit:\n", "    if True:\n"),
    )  # fmt: skip
