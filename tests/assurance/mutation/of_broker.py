"""Protections of the credential broker."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import (
    Always,
    Give,
    Instead,
    Never,
    Remove,
    Replace,
    Unwrap,
    Without,
)

SERVER = "tests/network/broker/test_server.py"
ANSWERS = "tests/network/broker/test_answers.py"
BODIES = "tests/network/broker/test_bodies.py"
ISOLATION = "tests/network/broker/test_isolation.py"
KEYS = "tests/network/broker/test_keys.py"
GIT_HOSTS = "tests/network/broker/test_repositories.py"
BROKER = "tests/system/test_broker.py"


def broker() -> Iterator[Protection]:
    """Return the protections of keys and budgets."""
    yield from marked(
        (SERVER,),
        ("token of a worker is checked", Instead("account is None or not token")),
        ("token is valid only from the worker's address",
         Instead("next(iter(self._grants.glob('*.json')))")),
        ("only listed models are passed on", Never()),
        ("models without a price are refused with a budget", Never()),
        ("budget is enforced", Always("spent.most_cost + cost <= grant.budget")),
        ("limit of tokens is enforced", Never("spent.most_tokens + given + made > grant.tokens")),
        ("calls per minute limited", Never()),
    )  # fmt: skip
    yield from marked(
        (BODIES,),
        ("number of values limited before parsing", Replace("MOST_VALUES", "10 ** 12")),
        ("levels limited before parsing", Never(), "the parser refuses a much deeper body as well"),
        ("fields have one meaning", Never()),
        ("only one limit of an answer", Never()),
        ("images are counted", Without("images * each")),
    )  # fmt: skip
    yield from marked(
        (BODIES,),
        ("only listed fields under limits", Give("extra='allow'")),
        ("only the cheap cache under limits", Replace("'5m'", "('5m', '1h')")),
    )  # fmt: skip
    yield from marked(
        (ISOLATION,),
        ("each worker has a process", Instead("_UNKNOWN")),
        ("no process outlives the broker",
         Remove(), "the end of the channel ends the process too, after its last answer"),
        ("memory of a worker's process limited",
         Remove(), "the number of values is limited first; this limit is for everything else"),
    )  # fmt: skip
    yield from marked(
        (SERVER,),
        ("costs of unfinished calls count", Instead("self.cost")),
        ("interrupted answers count with their maximum cost", Instead("(0.0, 0)")),
        ("calls through an earlier broker count", Instead("Spent()")),
    )  # fmt: skip
    yield from marked(
        (ANSWERS,),
        ("only the usage of whole answers is their cost", Without("answer.has_ended")),
        ("failed answers have no end of their own", Remove()),
    )  # fmt: skip
    yield from marked(
        (SERVER,),
        ("only listed calls are passed on", Replace("re.fullmatch", "re.match")),
        ("paths with `..` are refused",
         Without("not {'.', '..'}.isdisjoint(raw_path.split('/'))"),
         "every listed call is matched as a whole, and none contains `..`"),
        ("only listed headers are passed on", Without("name.lower() in _HEADERS")),
        ("cookies and redirects are removed from answers",
         Replace("_NOT_RETURNED", "_NOT_RETURNED - {'location'}"),
         "an answer with a redirect is not passed on at all"),
        ("only listed parameters are passed on", Without("name in _QUERY")),
    )  # fmt: skip
    yield from marked(
        (SERVER, GIT_HOSTS, ISOLATION),
        ("compressed requests are refused", Never()),
        ("of redirects, only the one to the same repository is followed",
         Instead("answer.headers.get('Location', '').partition('?')[0] != ''")),
        ("redirects are not followed", Give("allow_redirects=True")),
        ("compressed answers are refused", Never()),
        ("keys are redacted from answers", Instead("await self._write(reader.feed(data))")),
        ("tokens of git hosts are redacted from answers", Unwrap("feed")),
        ("pushes are refused", Never()),
        ("content of git-lfs is neither read nor written", Never()),
        ("only listed repositories are read", Never()),
        ("keys are redacted from headers of answers", Unwrap("text")),
        ("errors do not name the URL of an API",
         Replace("f'{way.place} cannot be reached ({type(error).__name__})'", "str(way.url)")),
        ("size of requests limited",
         Give("client_max_size=2 ** 40"),
         "the length of the request is checked first; this limit is for requests without it"),
    )  # fmt: skip
    yield from marked(
        (GIT_HOSTS,),
        ("paths of repositories with `..` are refused", Instead("found is None")),
        ("only requests of git are passed on", Never()),
        ("only listed headers are sent to a git host", Without("name.lower() in _HEADERS")),
    )  # fmt: skip
    yield from marked(
        (KEYS,),
        ("keys are removed from the variables of workers", Without("*ours")),
        ("other keys of the agent program are removed",
         Never("name.endswith((*_ENDINGS, *_BASES))")),
        ("base URLs with a password are refused", Instead("not (parts.query or parts.fragment)")),
    )  # fmt: skip
    yield from marked(
        (BROKER,),
        ("commands before and after the agent get no token", Instead("worker.config")),
    )  # fmt: skip
    yield from marked(
        (BROKER,),
        ("token is invalid after the worker's end", Remove()),
        ("budget needs a price before anything starts", Never()),
    )  # fmt: skip
    yield from marked(
        (BROKER,),
        ("worker on an open network reaches only the broker's port",
         Replace("BROKER_PORT", "None"), "Nothing listens on another port of the broker."),
    )  # fmt: skip
