"""Calculate tokens and cost of model calls with the price list of the library `genai-prices`."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

from genai_prices import Usage, calc_price, extract_usage

from orchestrator.network.broker.calls import Flavor

_PROVIDERS: Mapping[Flavor, tuple[str, str]] = {
    "chat": ("openai", "chat"),
    "responses": ("openai", "responses"),
    "messages": ("anthropic", "default"),
    "gemini": ("google", "default"),
}
"""Names of provider and API format in the price list, by format of a call."""


Own = Mapping[str, tuple[float, float]]
"""The user's prices of models: USD per million tokens of input and output."""
_MILLION = 1e6
_CACHE_WRITE = 0.25
"""What a token of input that is written to a cache costs more than others, as a share."""


@dataclass(frozen=True)
class Measured:
    """Tokens and cost of one call."""

    tokens: int
    cost: float | None
    """Cost in USD; None if the price is unknown."""


def most(model: str, flavor: Flavor, given: int, made: int, own: Own) -> float | None:
    """Return the maximum cost of a call in USD; None if the model has no price.

    Args:
        model: Name of the model.
        flavor: Format of the call.
        given: Number of input tokens.
        made: Maximum number of output tokens.
        own: The user's prices.
    """
    # A token that is written to a cache costs more than others.
    usages = [Usage(input_tokens=given, output_tokens=made)]
    if flavor == "messages":
        usages.append(Usage(input_tokens=given, cache_write_tokens=given, output_tokens=made))
    prices = [_price(usage, (model,), flavor, own) for usage in usages]
    known = [price for price in prices if price is not None]
    return max(known) if known else None


def measure(answer: Mapping[str, Any], model: str, flavor: Flavor, own: Own) -> Measured | None:
    """Return tokens and cost of a complete answer; None if the answer does not contain the tokens.

    Args:
        answer: The answer, or its parts with the model's name and the number of tokens.
        model: Name of the model in the request.
        flavor: Format of the call.
        own: The user's prices.
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
    models = [name for name in (named, model) if isinstance(name, str)]
    return Measured(tokens, _price(usage, models, flavor, own))


def main(*models: str) -> None:
    """Print as JSON which of the models have no price in any API's part of the price list."""
    usage = Usage(input_tokens=1, output_tokens=1)
    flavors: tuple[Flavor, ...] = get_args(Flavor)
    unpriced = [
        model
        for model in models
        if all(_price(usage, (model,), flavor, {}) is None for flavor in flavors)
    ]
    sys.stdout.write(json.dumps(unpriced))


def _price(usage: Usage, models: Sequence[str], flavor: Flavor, own: Own) -> float | None:
    """Return the price of the first model that has one; the user's prices come first."""
    # The price list may have a model as `provider/model`.
    names = dict.fromkeys(name for model in models for name in (model, model.rpartition("/")[2]))
    for name in names:
        if name in own:
            given, made = own[name]
            written = float(usage.cache_write_tokens or 0)
            read = float(usage.input_tokens or 0) + _CACHE_WRITE * written
            return (read * given + float(usage.output_tokens or 0) * made) / _MILLION
    for name, provider in product(names, (_PROVIDERS[flavor][0], None)):
        try:
            return float(calc_price(usage, name, provider_id=provider).total_price)
        except (LookupError, ValueError):
            continue
    return None
