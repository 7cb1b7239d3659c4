"""Find settings that an agent program does not support, so that none is silently ignored."""

from orchestrator.agents.base import AgentSettings
from orchestrator.config.run import ParallelConfig


def unsupported_settings(
    settings: AgentSettings,
    *,
    profiles: bool = True,
    cost: bool = True,
    tokens: bool = True,
    steps: bool = True,
) -> str | None:
    """Return the settings that the program cannot enforce, and why; None if there are none.

    Args:
        settings: The run's settings.
        profiles: Whether the program has profiles to choose from.
        cost: Whether the program can enforce a budget, or reports its cost while it runs.
        tokens: Whether the program reports its tokens while it runs.
        steps: Whether the program can limit its steps, or reports them while it runs.
    """
    unsupported = []
    if not profiles and settings.chosen_profile is not None:
        unsupported.append(f"`--agent {settings.profile}` (it has no profiles)")
    if not cost and settings.budget is not None:
        unsupported.append("`--budget-per-worker` (it does not report its cost)")
    if not tokens and settings.tokens is not None:
        unsupported.append("`--tokens-per-worker` (it does not report its tokens while it runs)")
    if not steps and settings.max_steps != ParallelConfig.model_fields["max_steps"].default:
        unsupported.append("`--max-steps` (it does not report its steps)")
    return " and ".join(unsupported) or None
