"""Calculate tokens and cost of model calls with the price list of the library `genai-prices`."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from genai_prices import Usage, calc_price, extract_usage

from orchestrator.broker.calls import Flavor

_PROVIDERS: Mapping[Flavor, tuple[str, str]] = {
    "chat": ("openai", "chat"),
    "responses": ("openai", "responses"),
    "messages": ("anthropic", "default"),
    "gemini": ("google", "default"),
}
"""Names of provider and API format in the price list, by format of a call."""


@dataclass(frozen=True)
class Measured:
    """Tokens and cost of one call."""

    tokens: int
    cost: float | None
    """Cost in USD; None if the price is unknown."""


def most(model: str, flavor: Flavor, given: int, made: int) -> float | None:
    """Return the maximum cost of a call in USD; None if the model has no price.

    Args:
        model: Name of the model.
        flavor: Format of the call.
        given: Number of input tokens.
        made: Maximum number of output tokens.
    """
    # A token that is written to a cache costs more than others.
    usages = [Usage(input_tokens=given, output_tokens=made)]
    if flavor == "messages":
        usages.append(Usage(input_tokens=given, cache_write_tokens=given, output_tokens=made))
    prices = [_price(usage, model, flavor) for usage in usages]
    known = [price for price in prices if price is not None]
    return max(known) if known else None


def measure(answer: Mapping[str, Any], model: str, flavor: Flavor) -> Measured | None:
    """Return tokens and cost of a complete answer; None if the answer does not contain the tokens.

    Args:
        answer: The answer, or its parts with the model's name and the number of tokens.
        model: Name of the model in the request.
        flavor: Format of the call.
    """
    provider, api = _PROVIDERS[flavor]
    try:
        # The format is the provider's; the model may be another provider's.
        known = {"model": "gpt-4o", "modelVersion": "gemini-2.5-pro"}
        if flavor == "messages":
            known = {"model": "claude-sonnet-4-5"}
        usage = extract_usage({**answer, **known}, provider_id=provider, api_flavor=api).usage
    except (ValueError, LookupError, TypeError):
        return None
    tokens = int(usage.input_tokens or 0) + int(usage.output_tokens or 0)
    if not tokens:
        return None
    named = answer.get("model") or answer.get("modelVersion")
    prices = (_price(usage, name, flavor) for name in (named, model) if isinstance(name, str))
    return Measured(tokens, next((price for price in prices if price is not None), None))


def _price(usage: Usage, model: str, flavor: Flavor) -> float | None:
    # The price list may have a model as `provider/model`.
    names = dict.fromkeys((model, model.rpartition("/")[2]))
    for name, provider in product(names, (_PROVIDERS[flavor][0], None)):
        try:
            return float(calc_price(usage, name, provider_id=provider).total_price)
        except (LookupError, ValueError):
            continue
    return None
