"""Find options that change nothing because what they modify was not asked for."""

from collections.abc import Callable, Iterator, Mapping

from orchestrator.config.run import ParallelConfig
from orchestrator.config.sources import flag


def _checks(config: ParallelConfig) -> bool:
    return bool(config.project.checks)


def _retries(config: ParallelConfig) -> bool:
    return config.retries > 0


def _triggers(config: ParallelConfig) -> bool:
    asked = config.triggers
    return bool(asked.silence or asked.repeated_errors or asked.prompts or asked.paths)


NEEDS: Mapping[str, tuple[Callable[[ParallelConfig], bool], str]] = {
    "check_network": (_checks, "`--check`"),
    "dotenv": (
        lambda config: bool(config.isolation.ports or config.project.services),
        "`--ports` or `--service`",
    ),
    "on_trigger": (
        _triggers,
        "`--silence`, `--repeated-errors`, `--prompts` or `--paths`",
    ),
    "retry_delay": (_retries, "`--retries`"),
    "retry_from": (
        # A worker that its provider refuses is started again without counting as a retry.
        lambda config: _retries(config) or config.rate_limit_wait > 0,
        "`--retries` or `--rate-limit-wait`",
    ),
    "retry_on": (_retries, "`--retries`"),
    "setup_network": (lambda config: bool(config.project.setup), "`--setup`"),
    "setup_timeout": (
        lambda config: bool(config.project.setup or config.project.teardown),
        "`--setup` or `--teardown`",
    ),
}
"""Options of `parallel` that modify others, whether one of those is in force, and their names.

A file may hold these settings for whoever asks for the rest on the command line."""


def without_effect(options: Mapping[str, object], config: ParallelConfig) -> Iterator[str]:
    """List the options that were given and change nothing.

    Args:
        options: The options, by the names of their settings; None was not given.
        config: The settings that all layers come to.
    """
    for name, (in_force, needed) in NEEDS.items():
        if options.get(name) is not None and not in_force(config):
            yield f"option `{flag(name)}` changes nothing without {needed}"
