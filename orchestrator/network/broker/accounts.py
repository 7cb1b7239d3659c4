"""Decide which model calls each worker may make, and track what each worker has spent."""

import fnmatch
import hmac
import re
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from orchestrator.base.text.redact import Redactor
from orchestrator.network.broker.answers import Reader
from orchestrator.network.broker.bodies import Request
from orchestrator.network.broker.grant import Grant, hash_token
from orchestrator.network.broker.ledger import Ledger
from orchestrator.network.broker.prices import measure, most

_MOST_AT_ONCE = 16
"""Maximum number of simultaneous calls of one worker."""
_MINUTE = 60.0
_PRICED = re.compile(r"[A-Za-z0-9._/-]+(?:@[0-9]+|:[0-9]+)?")
"""Names of models that may have a price. Other endings choose what costs more, as `:online`."""


class RefusedError(Exception):
    """The broker refuses a worker's call."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        retry_after: int | None = None,
        costs_nothing: bool = True,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.costs_nothing = costs_nothing
        """Whether it is certain that the provider bills nothing."""


@dataclass
class Account:
    """A worker's grant, and what the worker has spent of its limits."""

    grant: Grant
    ledger: Ledger
    redactor: Redactor
    at_once: int = 0
    recent: deque[float] = field(default_factory=deque)
    """Times of the worker's calls during the last minute."""

    def begin(self, *, billed: bool) -> None:
        """Check that the worker does not call too often, and count the call.

        Args:
            billed: Whether the call costs money.

        Raises:
            RefusedError: The worker calls too often.
        """
        now, most_calls = time.monotonic(), self.grant.calls_per_minute
        while self.recent and now - self.recent[0] >= _MINUTE:
            self.recent.popleft()
        # protection: calls-per-minute-limited
        if most_calls and len(self.recent) >= most_calls:
            wait = int(_MINUTE - (now - self.recent[0])) + 1
            self.ledger.refuse("rate")
            raise RefusedError(
                429,
                "gateway_rate_limit",
                f"too many calls to the model: at most {most_calls} per minute are allowed",
                retry_after=wait,
            )
        if self.at_once >= _MOST_AT_ONCE:
            raise RefusedError(
                429,
                "gateway_rate_limit",
                f"the worker may make at most {_MOST_AT_ONCE} calls at the same time",
                retry_after=1,
            )
        if billed or most_calls:
            self.recent.append(now)
        self.at_once += 1

    def set_aside(self, request: Request) -> int:
        """Reserve the maximum cost of a call, and return the number of the call in the ledger.

        The check of the budget and the ledger's entry are one step, so that two calls cannot spend
        the same money.

        Raises:
            RefusedError: The grant does not allow the model, a budget is set but the model has no
                price, or the rest of the budget or of the token limit is too small.
            BadRequestError: A field of the call is not allowed.
        """
        grant, flavor, model = self.grant, request.call.flavor, request.model
        if flavor is None:
            raise ValueError("the call is not billed")
        names = (model, model.rpartition("/")[2])
        # protection: only-listed-models-are-passed-on
        if grant.models and not any(
            fnmatch.fnmatchcase(name, pattern) for name in names for pattern in grant.models
        ):
            raise RefusedError(
                403, "model_not_allowed", f"the worker may not use the model {model!r:.100}"
            )
        if grant.is_limited:
            request.check_fields()
        given = request.most_given()
        cost, made = self._most(request, given, 0), 0
        # protection: models-without-price-are-refused-with-budget
        if grant.budget is not None and cost is None:
            named = f"the model `{model}`" if _PRICED.fullmatch(model) else f"{model!r:.100}"
            self.ledger.refuse("price", named[:200])
            raise RefusedError(
                403,
                "model_without_price",
                f"no price is known for {named}, and the worker has a budget; the user can set it "
                "with `--price MODEL=IN/OUT`",
            )
        if grant.budget is not None or grant.tokens is not None:
            fitting = request.limit_answer(lambda made: self._fits(request, given, made))
            if fitting is None:
                self.ledger.refuse("budget")
                said = "too little of the worker's budget or token limit is left for this call"
                raise RefusedError(402, "budget_exceeded", said)
            made, cost = fitting, self._most(request, given, fitting)
        return self.ledger.begin(cost, given + made, model)

    def settle(
        self, number: int, request: Request, answer: Reader | None, *, costs_nothing: bool
    ) -> None:
        """Record what a call cost; once that is known, do nothing.

        An answer that reached its own end costs what its usage says. Every other answer costs what
        was set aside, or more if more has arrived: the provider bills what it made, and the worker
        may have what it needs.

        Args:
            number: Number of the call in the ledger.
            request: The call.
            answer: What arrived of a billed answer; None if nothing did.
            costs_nothing: Whether the provider bills nothing, if the answer does not say otherwise.
        """
        reserved, flavor = self.ledger.spent.pending.get(number), request.call.flavor
        if reserved is None or flavor is None:
            return
        found = {} if answer is None else answer.found
        seen = measure(found, request.model, flavor, self.grant.prices)
        # protection: only-usage-of-whole-answers-is-their-cost
        if answer is not None and seen is not None and answer.has_ended:
            # A usage that the price list does not understand is not a cost of nothing.
            cost = reserved[0] if seen.cost is None else seen.cost
            self.ledger.end(number, cost, seen.tokens)
        elif costs_nothing:
            self.ledger.end(number, 0.0, 0)
        else:
            given, received = request.most_given(), 0 if answer is None else answer.received
            # Without a budget, no answer is set aside: a token has at least one byte.
            made = min(received, request.asked)
            known = [] if seen is None else [(seen.cost, seen.tokens)]
            self.ledger.end_unknown(
                number, (self._most(request, given, made), given + made), *known
            )

    def _most(self, request: Request, given: int, made: int) -> float | None:
        """Return the maximum cost of a call in USD; None if the model has no price."""
        model, flavor, prices = request.model, request.call.flavor, self.grant.prices
        is_named = model in prices or _PRICED.fullmatch(model) is not None
        return most(model, flavor, given, made, prices) if flavor and is_named else None

    def _fits(self, request: Request, given: int, made: int) -> bool:
        grant, spent = self.grant, self.ledger.spent
        # protection: limit-of-tokens-is-enforced
        if grant.tokens is not None and spent.most_tokens + given + made > grant.tokens:
            return False
        if grant.budget is None:
            return True
        cost = self._most(request, given, made)
        # protection: budget-is-enforced
        return cost is not None and spent.most_cost + cost <= grant.budget


class Accounts:
    """The accounts of all workers, by IP address. A grant is read again when its file changes."""

    def __init__(self, grants: Path, state: Path) -> None:
        self._grants = grants
        self._state = state
        self._found: dict[str, tuple[tuple[int, int], Account]] = {}
        self._ledgers: dict[str, Ledger] = {}

    def of(self, address: str, token: str) -> Account:
        """Return the account of a worker.

        Raises:
            RefusedError: No worker has this address, or the token is another worker's.
        """
        account = self._account(address)
        # protection: token-of-worker-is-checked
        if account is None or not hmac.compare_digest(account.grant.token, hash_token(token)):
            raise RefusedError(
                401, "invalid_gateway_token", "the token does not belong to this worker"
            )
        return account

    def _account(self, address: str) -> Account | None:
        # protection: token-is-valid-only-from-workers-address
        path = self._grants / f"{address}.json"
        try:
            info = path.stat()
            version = (info.st_ino, info.st_mtime_ns)
            known = self._found.get(address)
            if known is not None and known[0] == version:
                return known[1]
            grant = Grant.model_validate_json(path.read_bytes())
            if known is not None and known[1].grant == grant:
                # The same grant arrived again: what the worker has used of it still counts.
                self._found[address] = version, known[1]
                return known[1]
        except (OSError, ValidationError):
            self._found.pop(address, None)
            return None
        if grant.ledger not in self._ledgers:
            self._ledgers[grant.ledger] = Ledger(self._state / f"{grant.ledger}.ndjson")
        keys = {name: upstream.key for name, upstream in grant.upstreams.items() if upstream.key}
        tokens = {place.url: place.key.partition(":")[2] for place in grant.repositories}
        redactor = Redactor({name: key.encode() for name, key in {**keys, **tokens}.items()})
        account = Account(grant, self._ledgers[grant.ledger], redactor)
        self._found[address] = version, account
        return account
