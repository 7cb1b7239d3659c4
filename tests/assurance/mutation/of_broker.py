"""Protections of the credential broker."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

SERVER = "tests/broker/test_server.py"
KEYS = "tests/broker/test_keys.py"
BROKER = "tests/system/test_broker.py"


def broker() -> Iterator[Protection]:
    """Return the protections of keys and budgets."""
    yield from patches(
        "broker/accounts.py", (SERVER,),
        ("token checked", "hmac.compare_digest(account.grant.token, hashed(token))", "token"),
        ("token bound to its address", 'self._grants / f"{address}.json"',
         'next(iter(self._grants.glob("*.json")))'),
        ("models listed", "if grant.models and not any(", "if False and not any("),
        ("budget needs a price", "if grant.budget is not None and cost is None:", "if False:"),
        ("budget enforced", "spent.most_cost + cost <= grant.budget", "True"),
        ("tokens enforced", "spent.most_tokens + given + made > grant.tokens", "False"),
        ("calls a minute", "if most_calls and len(self.recent) >= most_calls:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "broker/ledger.py", (SERVER,),
        ("what is set aside counts", "self.cost + sum(cost for cost, _ in self.pending.values())",
         "self.cost"),
        ("a broken answer is charged", "cost, tokens = self.spent.pending[number]",
         "cost, tokens = 0.0, 0"),
        ("an earlier broker's calls count", "self.spent = read_ledger(path)",
         "self.spent = Spent()"),
    )  # fmt: skip
    yield from patches(
        "broker/calls.py", (SERVER,),
        ("calls on a list", "re.fullmatch(_VERSION + path, parts[2])",
         "re.match(_VERSION + path, parts[2])"),
        ("no part of a path leads upwards",
         'if parts is None or not {".", ".."}.isdisjoint(raw_path.split("/")):',
         "if parts is None:",
         "Every listed call is matched as a whole, and none contains such a part."),
        ("headers on a list", "if name.lower() in _HEADERS or name.lower().startswith(",
         "if True or name.lower().startswith("),
        ("no cookie, no redirect in an answer", "if name.lower() not in _NOT_RETURNED:",
         'if name.lower() not in _NOT_RETURNED - {"location"}:',
         "An answer with a redirect is not passed on at all."),
        ("parameters on a list", "if name in _QUERY}", "}"),
    )  # fmt: skip
    yield from patches(
        "broker/server.py", (SERVER,),
        ("redirects not followed", "allow_redirects=False", "allow_redirects=True"),
        ("no key in an answer", "passed = clean.feed(reader.feed(data))",
         "passed = reader.feed(data)"),
        ("no key in a header", "(name, redactor.text(value))", "(name, value)"),
        ("no address of an API in an error",
         'f"the API cannot be reached ({type(error).__name__})"', "str(upstream.url)"),
        ("bodies limited", "client_max_size=_LARGEST_BODY", "client_max_size=2**40",
         "The length of the request is checked first; this limit is for requests without it."),
    )  # fmt: skip
    yield from patches(
        "broker/keys.py", (KEYS,),
        ("no key among the variables", "private = {*ours, *(", "private = {*("),
        ("other keys of the program held back", "if name.endswith((*_ENDINGS, *_BASES)))",
         "if False)"),
        ("no password in a base URL", "parts.username or parts.password or ", ""),
    )  # fmt: skip
    yield from patches(
        "worker/container_specs.py", (BROKER,),
        ("commands around the agent without keys",
         "    config = Given.of(worker, None, None).config", "    config = worker.config"),
    )  # fmt: skip
    yield from patches(
        "worker/agent_container.py", (BROKER,),
        ("token ends with the worker", "worker.run.broker.dismiss(worker.number)", "pass"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/firewall.py", (BROKER,),
        ("worker on an open network reaches the broker's port alone",
         "(link.broker, BROKER_PORT)", "(link.broker, None)"),
    )  # fmt: skip
