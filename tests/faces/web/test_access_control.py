"""Tests of the access control: attacks on it are refused, and nothing is read or changed."""

import re
import stat
from pathlib import Path
from urllib.parse import urlencode

import pytest

from orchestrator.faces.web.access_control import HEADERS
from orchestrator.faces.web.forms import RUN_FORMS, WORKER_FORMS
from tests.support.reports import RUN_ID
from tests.support.repository import make_repository
from tests.support.web import HOST, PORT, Browser, browser, ended_run, result_of, stranger

SECRET_TASK = "the task nobody else may read"
RUN = f"/repo/{RUN_ID}"
PAGES = [
    "/", RUN, f"{RUN}/events", f"{RUN}/costs", f"{RUN}/details", f"{RUN}/conflicts", f"{RUN}/1",
    f"{RUN}/1/diff", f"{RUN}/1/checks", f"{RUN}/1/events", f"{RUN}/1/details", f"{RUN}/merge",
    f"{RUN}/stop", f"{RUN}/1/stop", f"{RUN}/1/retry", f"{RUN}/1/log/stdout", f"{RUN}/1/text/stdout",
    f"{RUN}/1/raw/stdout", f"{RUN}/compare", f"{RUN}/pick", f"{RUN}/1/findings",
    f"{RUN}/1/artifact/1", "/?q=the", "/nothing", "/static/app.py", "/repo/command/1",
]  # fmt: skip
FORMS = [
    f"{RUN}/1/stop", f"{RUN}/stop", f"{RUN}/merge", f"{RUN}/pick", "/repo/new", f"{RUN}/1/comment",
    *(f"{RUN}/1/{name}" for name in WORKER_FORMS),
    *(f"{RUN}/{name}" for name in RUN_FORMS),
]  # fmt: skip
"""All forms: each attack is tried on each of them."""
STARTS = {"how": "start", "task": SECRET_TASK, "check": "true", "worker": "1", "message": "x"}
"""Fields that start the command of any form that a page of the server has sent."""


@pytest.fixture(autouse=True)
def no_command_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a request starts a process of a command."""

    def start(*words: str) -> list[str]:
        raise AssertionError(f"a command was started: {words}")

    monkeypatch.setattr("orchestrator.faces.web.commands.own_command", start)


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository for all tests of this file: none of them changes it."""
    return make_repository(tmp_path_factory.mktemp("access") / "repo")


@pytest.fixture(scope="module", autouse=True)
def run(repo: Path) -> Path:
    """Write a run with one worker and its output."""
    directory = ended_run(repo, result_of(1), task=SECRET_TASK)
    (directory.worker(1) / "stdout.log").write_text(SECRET_TASK)
    return directory.path


@pytest.fixture
def guest(repo: Path) -> Browser:
    """Return a browser that used the link."""
    return browser(repo)


def assert_refused(answer, *statuses: int) -> None:
    assert answer.status in statuses, answer
    assert SECRET_TASK not in answer.text


@pytest.mark.parametrize("page", [*PAGES, *FORMS])
def test_nothing_is_answered_without_a_session(repo, page):
    visitor, _ = stranger(repo)
    assert_refused(visitor.get(page), 401)
    assert "orchestrator ui" in visitor.get(page).text


def test_page_of_the_link_gets_its_scripts_and_styles_without_a_session(repo):
    visitor, _ = stranger(repo)
    parts = re.findall(r'(?:src|href)="(/static/[^"]+)"', visitor.get("/open").text)
    assert any(part.endswith("sign_in.js") for part in parts)
    for part in parts:
        assert visitor.get(part).status == 200, part


@pytest.mark.parametrize("cookie", ["x", "orchestrator-ui-8123=", "orchestrator-ui-8123=guessed"])
def test_a_wrong_cookie_opens_nothing(repo, cookie):
    visitor, _ = stranger(repo)
    visitor.cookie = cookie
    assert_refused(visitor.get("/"), 401)


FOREIGN = [
    "theme=dark", 'prefs={"a":1,"b":"c"}', "user=Ann Lee", "consent", "filters[state]=open",
    "expires=never", "name=J\u00f6rg", "=", "", ";", "=x", "a=b=c", 'q="', "path", "a,b=c",
    "a\tb=c", f"orchestrator-ui-{PORT}=stale", f"orchestrator-ui-{PORT}",
    f"orchestrator-ui-{PORT + 1}=x", "x=" + "y" * 4000,
    "$Version=1", "k=\x7f", "secure", "HttpOnly=", "max-age=1",
]  # fmt: skip
"""Cookies that other programs at 127.0.0.1 may have set."""


@pytest.mark.parametrize("other", FOREIGN)
def test_cookies_of_other_programs_close_nothing(guest, other):
    own = guest.cookie
    for guest.cookie in (f"{other}; {own}", f"{own}; {other}", f"{other};{own};{other}"):
        assert SECRET_TASK in guest.get("/").text


def test_session_is_found_in_any_of_several_cookie_headers(guest):
    own, guest.cookie = guest.cookie, "theme=dark"
    assert SECRET_TASK in guest.get("/", Cookie=own).text


def test_cookie_of_another_server_opens_nothing(repo, guest):
    other, _ = stranger(repo)
    other.cookie = guest.cookie
    assert_refused(other.get("/"), 401)


def test_the_link_works_once_and_its_cookie_is_for_this_server_only(repo):
    first, sessions = stranger(repo)
    answer = first.sign_in(sessions.key)
    assert answer.status == 204
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"orchestrator-ui-{PORT}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=2592000"} <= set(cookie.split("; "))
    assert SECRET_TASK in first.get("/").text
    second = Browser(first.guarded)
    assert_refused(second.sign_in(sessions.key), 403)
    assert_refused(second.get("/"), 401)
    assert len(sessions.key) >= 43


def test_a_wrong_key_opens_nothing_and_does_not_use_up_the_link(repo):
    visitor, sessions = stranger(repo)
    for key in ("", "x", sessions.key[:-1], sessions.key + "x"):
        assert visitor.sign_in(key).status == 403
    assert visitor.sign_in(sessions.key).status == 204


@pytest.mark.parametrize("host", [
    "", "evil.example", f"evil.example:{PORT}", f"127.0.0.1.evil:{PORT}", "127.0.0.1", "localhost",
    f"127.0.0.1:{PORT}.", f"127.0.0.1.:{PORT}", f"127.0.0.1:{PORT + 1}", f"[::1]:{PORT}",
    f"0.0.0.0:{PORT}", f"127.0.0.2:{PORT}", f"x@127.0.0.1:{PORT}", f"LOCALHOST:{PORT}",
    f"127.0.0.1:{PORT}, evil.example", f"localtest.me:{PORT}",
])  # fmt: skip
def test_another_host_is_refused_even_with_a_session(guest, host):
    assert_refused(guest.get("/", host=host), 421)
    assert_refused(guest.post(f"{RUN}/1/stop", {}, host=host), 421)


def test_localhost_is_the_same_server(guest):
    assert SECRET_TASK in guest.get("/", host=f"localhost:{PORT}").text


FORGED = {
    "no origin": {"origin": ""},
    "origin null": {"origin": "null"},
    "another site": {"origin": "http://evil.example", "sec_fetch_site": "cross-site"},
    "another port": {"origin": "http://127.0.0.1:9", "sec_fetch_site": "same-site"},
    "another name": {"origin": f"http://localhost:{PORT}"},
    "https": {"origin": f"https://{HOST}"},
    "no fetch metadata": {"sec_fetch_site": ""},
    "cross-site by metadata": {"sec_fetch_site": "cross-site"},
    "same-site by metadata": {"sec_fetch_site": "same-site"},
    "typed address": {"sec_fetch_site": "none"},
}


@pytest.mark.parametrize("headers", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("path", [*FORMS, "/open"])
def test_forms_of_other_pages_are_refused(guest, run, path, headers):
    before = sorted(run.iterdir())
    fields = {**STARTS, "token": guest.token(f"{RUN}/1/stop")}
    assert_refused(guest.post(path, fields, **headers), 403)
    assert sorted(run.iterdir()) == before


@pytest.mark.parametrize("token", [None, "", "x" * 64])
def test_a_form_without_the_token_of_the_session_is_refused(guest, run, token):
    before = sorted(run.iterdir())
    fields = STARTS if token is None else {**STARTS, "token": token}
    for path in FORMS:
        assert_refused(guest.post(path, fields), 403)
    assert sorted(run.iterdir()) == before


def test_the_token_of_another_session_is_refused(repo, guest):
    other = browser(repo)
    assert other.token(f"{RUN}/1/stop") != guest.token(f"{RUN}/1/stop")
    token = other.token(f"{RUN}/1/stop")
    for path in FORMS:
        assert_refused(guest.post(path, {**STARTS, "token": token}), 403)


def test_a_form_cannot_be_replayed_in_a_later_session(repo, guest):
    token = guest.token("/repo/new")
    assert guest.post("/repo/new", {**STARTS, "how": "show", "token": token}).status == 200
    later = browser(repo)
    assert_refused(later.post("/repo/new", {**STARTS, "token": token}), 403)
    later.cookie = ""
    assert_refused(later.post("/repo/new", {**STARTS, "token": token}), 401)


def test_two_tokens_in_one_form_are_refused(guest):
    token = guest.token("/repo/new")
    assert_refused(guest.post("/repo/new", {**STARTS, "token": [token, token]}), 403)


@pytest.mark.parametrize("path", FORMS)
def test_reading_a_form_starts_nothing_whatever_its_address_says(guest, run, path):
    before = sorted(run.iterdir())
    guest.get(f"{path}?{urlencode({**STARTS, 'token': guest.token('/repo/new')})}")
    assert sorted(run.iterdir()) == before


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "CONNECT"])
def test_other_methods_are_refused(guest, method):
    assert_refused(guest.ask(method, "/", {"host": HOST}), 405)


def test_an_upgrade_is_refused(guest):
    assert_refused(guest.get("/", upgrade="websocket", connection="Upgrade"), 400)


@pytest.mark.parametrize("path", [
    "/..%2f..%2fetc%2fpasswd", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/%00", "/a%0ab",
    f"http://evil.example{RUN}", f"http://{HOST}/", "evil", "*", f"{RUN}/1/log/..%2f..%2frun.json",
    "/" + "a" * 500, f"{RUN}/1/log/stdout%2e1", "/<script>",
])  # fmt: skip
def test_addresses_with_other_characters_are_refused(guest, path):
    assert_refused(guest.get(path), 400)


@pytest.mark.parametrize("path", [
    "/static/../app.py", "/static/..", "/static/app.py", f"{RUN}/1/log/..", f"{RUN}/1/log/run.json",
    f"{RUN}/1/raw/result.json", f"{RUN}/1/raw/..", f"{RUN}/../../../config", "/repo/..", "/../..",
    f"/other/{RUN_ID}", f"{RUN}x", f"{RUN}/2", f"{RUN}/1/nothing", f"{RUN}/nothing", "/repo/.",
    f"{RUN}/graph", "//evil.example",
])  # fmt: skip
def test_only_runs_and_their_logs_have_addresses(guest, path):
    answer = guest.get(path)
    assert answer.status == 404
    assert "root:" not in answer.text
    assert "[core]" not in answer.text


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_sites_cannot_embed_anything(guest, site):
    for path in ("/", RUN, "/static/app.js", f"{RUN}/1/text/stdout"):
        assert_refused(guest.get(path, sec_fetch_site=site, sec_fetch_mode="no-cors"), 403)


@pytest.mark.parametrize("path", ["/", "/nothing", "/static/app.css", "/open", "/a%20b"])
def test_every_answer_has_the_headers(guest, path):
    answer = guest.get(path)
    for name, value in HEADERS.items():
        assert answer.headers[name.lower()] == value
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "access-control-allow-origin" not in answer.headers


def test_only_files_of_the_package_are_cached_and_only_by_their_version(guest):
    page = guest.get("/").text
    (style,) = re.findall(r'href="(/static/app\.css\?[0-9a-f]{16})"', page)
    assert guest.get(style).headers["cache-control"] == "max-age=31536000, immutable"
    version = style.partition("?")[2]
    for path in ("/static/app.css", "/static/app.css?1", f"/?{version}", f"{RUN}?{version}",
                 f"/static/none.css?{version}", f"{RUN}/1/raw/stdout?{version}"):  # fmt: skip
        assert guest.get(path).headers["cache-control"] == "no-store"


def test_a_large_body_is_refused(guest):
    assert guest.post(f"{RUN}/1/stop", b"x" * 70_000).status == 413
    assert guest.post("/open", b"x" * 70_000).status == 413
    assert guest.post("/open", b"x" * 70_000, content_length="9").status == 413
    assert guest.post("/open", b"x", content_length="").status == 413


def test_sessions_of_a_named_port_survive_a_restart(repo, tmp_path):
    store = tmp_path / "state" / "ui-8123"
    first, sessions = stranger(repo, store=store)
    first.sign_in(sessions.key)
    again, later = stranger(repo, store=store)
    again.cookie = first.cookie
    assert SECRET_TASK in again.get("/").text
    assert again.sign_in(sessions.key).status == 403, "the old link is used up"
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    value = first.cookie.partition("=")[2]
    assert value not in store.read_text()
    assert later.key not in store.read_text()


def test_a_broken_or_foreign_store_opens_nothing(repo, tmp_path):
    store = tmp_path / "ui-8123"
    store.write_text("x\n" * 100)
    visitor, _ = stranger(repo, store=store)
    visitor.cookie = "orchestrator-ui-8123=x"
    assert_refused(visitor.get("/"), 401)
    store.unlink()
    store.symlink_to("/dev/zero")
    visitor, _ = stranger(repo, store=store)
    assert_refused(visitor.get("/"), 401)


def test_two_views_at_sockets_are_open_in_one_browser(repo):
    views, cookies = [], []
    for _ in range(2):
        visitor, sessions = stranger(repo, port=None)
        visitor.sign_in(sessions.key)
        cookies.append(visitor.cookie)
        views.append(visitor)
    # A browser replaces a cookie by the next one of its name.
    kept = dict(cookie.split("=", 1) for cookie in cookies)
    for view in views:
        view.cookie = "; ".join("=".join(pair) for pair in kept.items())
        assert SECRET_TASK in view.get("/").text
    views[0].cookie = cookies[1].replace(*(cookie.partition("=")[0] for cookie in cookies[::-1]))
    assert_refused(views[0].get("/"), 401)


def test_a_socket_accepts_any_mapped_port(repo):
    visitor, sessions = stranger(repo)
    visitor.guarded._port = None
    own = {"host": "localhost:80", "origin": "http://localhost:81"}
    assert visitor.post("/open", sessions.key.encode(), **own).status == 403
    for host in ("localhost:8080", "127.0.0.1:1"):
        assert visitor.get("/", host=host).status == 401
    for host in ("evil.example", "localhost.evil:80", "localhost:123456"):
        assert visitor.get("/", host=host).status == 421
