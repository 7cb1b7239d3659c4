"""Protections of the credential broker."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

SERVER = "tests/broker/test_server.py"
BODIES = "tests/broker/test_bodies.py"
ISOLATION = "tests/broker/test_isolation.py"
KEYS = "tests/broker/test_keys.py"
GIT_HOSTS = "tests/broker/test_repositories.py"
BROKER = "tests/system/test_broker.py"


def broker() -> Iterator[Protection]:
    """Return the protections of keys and budgets."""
    yield from patches(
        "broker/accounts.py", (SERVER,),
        ("token of a worker is checked",
         "hmac.compare_digest(account.grant.token, hash_token(token))", "token"),
        ("token is valid only from the worker's address", 'self._grants / f"{address}.json"',
         'next(iter(self._grants.glob("*.json")))'),
        ("only listed models are passed on",
         "if grant.models and not any(", "if False and not any("),
        ("models without a price are refused with a budget",
         "if grant.budget is not None and cost is None:", "if False:"),
        ("budget is enforced", "spent.most_cost + cost <= grant.budget", "True"),
        ("limit of tokens is enforced", "spent.most_tokens + given + made > grant.tokens", "False"),
        ("calls per minute limited",
         "if most_calls and len(self.recent) >= most_calls:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "broker/bodies.py", (BODIES,),
        ("number of values limited before parsing", "> MOST_VALUES:", "> 10**12:"),
        ("levels limited before parsing", "if deepest > MOST_LEVELS:", "if False:",
         "the parser refuses a much deeper body as well"),
        ("fields have one meaning", "if len(found) < len(pairs):", "if False:"),
        ("only one limit of an answer",
         'if self.call.flavor == "chat" and len(both) > 1:', "if False:"),
        ("images are counted", "len(self.encode()) + images * each", "len(self.encode())"),
    )  # fmt: skip
    yield from patches(
        "broker/fields.py", (BODIES,),
        ("only listed fields under limits", 'extra="forbid", strict', 'extra="allow", strict'),
        ("only the cheap cache under limits", 'Literal["5m"]', 'Literal["5m", "1h"]'),
    )  # fmt: skip
    yield from patches(
        "broker/processes.py", (ISOLATION,),
        ("each worker has a process", "key = address if self._has_grant(address) else _UNKNOWN",
         "key = _UNKNOWN"),
        ("no process outlives the broker",
         "ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)", "pass",
         "the end of the channel ends the process too, after its last answer"),
        ("memory of a worker's process limited",
         "resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))", "pass",
         "the number of values is limited first; this limit is for everything else"),
    )  # fmt: skip
    yield from patches(
        "broker/ledger.py", (SERVER,),
        ("costs of unfinished calls count",
         "self.cost + sum(cost for cost, _ in self.pending.values())",
         "self.cost"),
        ("interrupted answers count with their maximum cost",
         "cost, tokens = self.spent.pending[number]",
         "cost, tokens = 0.0, 0"),
        ("calls through an earlier broker count", "self.spent = read_ledger(path)",
         "self.spent = Spent()"),
    )  # fmt: skip
    yield from patches(
        "broker/calls.py", (SERVER,),
        ("only listed calls are passed on", "re.fullmatch(_VERSION + path, parts[2])",
         "re.match(_VERSION + path, parts[2])"),
        ("paths with `..` are refused",
         'if parts is None or not {".", ".."}.isdisjoint(raw_path.split("/")):',
         "if parts is None:",
         "every listed call is matched as a whole, and none contains `..`"),
        ("only listed headers are passed on",
         "for name, value in headers.items() if name.lower() in _HEADERS}",
         "for name, value in headers.items()}"),
        ("cookies and redirects are removed from answers", "if name.lower() not in _NOT_RETURNED:",
         'if name.lower() not in _NOT_RETURNED - {"location"}:',
         "an answer with a redirect is not passed on at all"),
        ("only listed parameters are passed on", "if name in _QUERY}", "}"),
    )  # fmt: skip
    yield from patches(
        "broker/server.py broker/passing.py", (SERVER, GIT_HOSTS, ISOLATION),
        ("compressed requests are refused",
         "if encoding not in ((_PLAIN, _GZIP) if of_git is not None else (_PLAIN,)):", "if False:"),
        ("of redirects, only the one to the same repository is followed",
         '.partition("?")[0] == self.renamed', '.partition("?")[0] != ""'),
        ("redirects are not followed", "allow_redirects=False", "allow_redirects=True"),
        ("compressed answers are refused",
         'if answer.headers.get("Content-Encoding", _PLAIN).lower() != _PLAIN:', "if False:"),
        ("keys are redacted from answers", "self._write(clean.feed(reader.feed(data)))",
         "self._write(reader.feed(data))"),
        ("tokens of git hosts are redacted from answers", "self._write(clean.feed(data))",
         "self._write(data)"),
        ("pushes are refused", 'if asked.does == "writes":\n        raise',
         "if False:\n        raise"),
        ("content of git-lfs is neither read nor written",
         'if asked.does == "reads large files":\n        raise', "if False:\n        raise"),
        ("only listed repositories are read", "if repository is None:\n        raise",
         "if False:\n        raise"),
        ("keys are redacted from headers of answers",
         "(name, redactor.text(value))", "(name, value)"),
        ("errors do not name the URL of an API",
         'f"{way.place} cannot be reached ({type(error).__name__})"', "str(way.url)"),
        ("size of requests limited", "client_max_size=_LARGEST_BODY", "client_max_size=2**40",
         "the length of the request is checked first; this limit is for requests without it"),
    )  # fmt: skip
    yield from patches(
        "broker/repositories.py", (GIT_HOSTS,),
        ("paths of repositories with `..` are refused",
         'if found is None or not {".", ".."}.isdisjoint(found["path"].split("/")):',
         "if found is None:"),
        ("only requests of git are passed on", "if service not in (READS, _WRITES):", "if False:"),
        ("only listed headers are sent to a git host", "if name.lower() in _HEADERS}", "}"),
    )  # fmt: skip
    yield from patches(
        "broker/keys.py", (KEYS,),
        ("keys are removed from the variables of workers", "private = {*ours, *(", "private = {*("),
        ("other keys of the agent program are removed", "if name.endswith((*_ENDINGS, *_BASES)))",
         "if False)"),
        ("base URLs with a password are refused", "parts.username or parts.password or ", ""),
    )  # fmt: skip
    yield from patches(
        "worker/container_specs.py", (BROKER,),
        ("commands before and after the agent get no token",
         "    config = Given.of(worker, None, None).config", "    config = worker.config"),
    )  # fmt: skip
    yield from patches(
        "worker/grants.py", (BROKER,),
        ("token is invalid after the worker's end",
         "worker.run.broker.dismiss(worker.number)", "pass"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/firewall.py", (BROKER,),
        ("worker on an open network reaches only the broker's port",
         "(link.broker, BROKER_PORT)", "(link.broker, None)",
         "Nothing listens on another port of the broker."),
    )  # fmt: skip
