"""Find command line options that have no effect because another option is missing."""

from collections.abc import Callable, Collection, Iterator, Mapping

from orchestrator.config.fields import flag
from orchestrator.config.settings.container import CLUSTERS
from orchestrator.config.settings.run import ParallelConfig


def _checks(config: ParallelConfig) -> bool:
    return bool(config.project.checks)


def _retries(config: ParallelConfig) -> bool:
    return config.retries > 0


def _setup(config: ParallelConfig) -> bool:
    return bool(config.project.setup)


def _broker(config: ParallelConfig) -> bool:
    return config.isolation.keys == "broker"


def _cluster(config: ParallelConfig) -> bool:
    return config.isolation.engine in CLUSTERS


def _triggers(config: ParallelConfig) -> bool:
    asked = config.triggers
    return bool(asked.silence or asked.repeated_errors or asked.prompts or asked.paths)


NEEDS: Mapping[str, tuple[Callable[[ParallelConfig], bool], str]] = {
    "calls_per_minute": (_broker, "`--keys broker`"),
    "check_allow": (_checks, "`--check`"),
    "check_network": (_checks, "`--check`"),
    "dotenv": (
        lambda config: bool(config.isolation.ports or config.project.services),
        "`--ports` or `--service`",
    ),
    "fix_checks": (_checks, "`--check`"),
    "git_read": (_broker, "`--keys broker`"),
    "key_models": (_broker, "`--keys broker`"),
    "on_trigger": (
        _triggers,
        "`--alert-silence`, `--alert-errors`, `--alert-prompt` or `--alert-outside`",
    ),
    "prices": (_broker, "`--keys broker`"),
    "registry": (_cluster, "`--engine kubernetes`"),
    "retry_delay": (_retries, "`--retries`"),
    "retry_from": (
        # A restart after a refusal by the provider does not count as a retry.
        lambda config: _retries(config) or config.rate_limit_wait > 0,
        "`--retries` or `--rate-limit-wait`",
    ),
    "retry_on": (_retries, "`--retries`"),
    "setup_allow": (_setup, "`--setup`"),
    "setup_network": (_setup, "`--setup`"),
    "setup_timeout": (
        lambda config: bool(config.project.setup or config.project.teardown),
        "`--setup` or `--teardown`",
    ),
}
"""For each option that modifies a feature: whether that feature is enabled, and the options that
enable it. Only command line options are checked: a file may hold settings for features that are
enabled by options.
"""


def without_effect(
    options: Mapping[str, object], configs: Collection[ParallelConfig]
) -> Iterator[str]:
    """Yield a problem for each given option that has no effect.

    Args:
        options: Values by setting name; None: not given.
        configs: The settings of the run, or of each of its tasks.
    """
    for name, (in_force, needed) in NEEDS.items():
        if options.get(name) is not None and not any(map(in_force, configs)):
            yield f"option `{flag(name)}` has no effect without {needed}"
