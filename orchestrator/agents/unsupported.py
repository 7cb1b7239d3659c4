"""Say which of a run's settings an agent program cannot keep: none is accepted and ignored."""

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
    """Name what was asked for and cannot be kept, or None.

    Args:
        settings: What a run asks.
        profiles: Whether the program has profiles to choose from.
        cost: Whether it keeps a budget, or says while it runs what it has spent.
        tokens: Whether it says while it runs how many it took.
        steps: Whether it keeps a limit of steps, or says while it runs how many it took.
    """
    found = []
    if not profiles and settings.chosen_profile is not None:
        found.append(f"`--agent {settings.profile}` (it has no profiles)")
    if not cost and settings.budget is not None:
        found.append("`--budget-per-worker` (it does not say what it spends)")
    if not tokens and settings.tokens is not None:
        found.append("`--tokens-per-worker` (it does not say how many it takes, while it runs)")
    if not steps and settings.max_steps != ParallelConfig.model_fields["max_steps"].default:
        found.append("`--max-steps` (it does not say how many it takes)")
    return " and ".join(found) or None
