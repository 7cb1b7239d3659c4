"""Protections of reports: text of workers cannot steer the readers of any format."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches


def reports() -> Iterator[Protection]:
    """Reports of runs, in every format."""
    yield from patches(
        "reports/markup.py", ("tests/reports/test_junit.py", "tests/reports/test_html.py"),
        ("XML and HTML are escaped", "clean = escape(_FORBIDDEN", "clean = str(_FORBIDDEN"),
        ("characters that XML forbids are replaced", "_FORBIDDEN.sub(", "re.sub('x^', "),
        ("no CI commands in XML and HTML",
         'return _COMMAND.sub(lambda match: f"&#{ord(match[0])};", clean)', "return clean"),
    )  # fmt: skip
    yield from patches(
        "reports/as_json.py",
        ("tests/reports/test_sarif.py", "tests/reports/test_gitlab.py"),
        ("no CI commands in JSON reports", r'.replace("##", r"\u0023\u0023")', ""),
    )
    yield from patches(
        "reports/markdown.py", ("tests/reports/test_markdown.py",),
        ("Markdown is escaped", r'_SPECIAL.sub(r"\\\1", one_line(text, limit=4000))',
         "one_line(text, limit=4000)"),
        ("mentions and links are broken", "return _ADDRESS.sub(_JOINER, escaped)",
         "return escaped"),
        ("a fence is longer than those in the text", '"`" * max(longest + 1, 3)', '"```"'),
        ("HTML in Markdown is escaped", "escape(one_line(text, limit=200))",
         "one_line(text, limit=200)"),
    )  # fmt: skip
    yield from patches(
        "reports/github.py", ("tests/reports/test_github.py",),
        ("properties of annotations are escaped", "_escaped(text, _PROPERTY)", "text"),
        ("at most ten annotations of a kind", "if len(found) <= MOST_ANNOTATIONS:", "if True:"),
        ("a summary stays below its limit", "left = MOST_OF_SUMMARY - file.tell()",
         "left = MOST_OF_SUMMARY"),
    )  # fmt: skip
    yield from patches(
        "reports/github.py", ("tests/reports/test_killed.py",),
        ("no half of an output on a full disk", "        file.truncate(end)\n", ""),
        ("a summary is appended in one call", "    if file.write(data) != len(data):",
         "    if sum(file.write(bytes([one])) for one in data) != len(data):"),
    )  # fmt: skip
    yield from patches(
        "reports/findings.py", ("tests/reports/test_findings.py",),
        ("findings outside of the repository are dropped", '".." in parts or', "False or"),
        ("findings of files that are not there are dropped",
         "if _is_there(report, worker, finding.path):", "if True:"),
    )  # fmt: skip
    yield from patches(
        "reports/html.py",
        ("tests/reports/test_html.py",),
        ("the HTML report forbids scripts and requests", "default-src 'none'; ", ""),
    )
    yield from patches(
        "reports/otlp_export.py", ("tests/reports/test_otlp.py",),
        ("traces follow no redirect", "urllib.request.build_opener(_NoRedirects)",
         "urllib.request.build_opener()"),
    )  # fmt: skip
    yield from patches(
        "reports/otlp_export.py", ("tests/reports/test_otlp.py",),
        ("no collector delays the end of a run", "thread.join(_TIMEOUT)", "thread.join()"),
    )  # fmt: skip
    yield from patches(
        "files/atomic.py", ("tests/reports/test_killed.py", "tests/files/test_atomic.py"),
        ("a file is renamed when it is complete", 'f".{secrets.token_hex(8)}.new"', "name"),
    )  # fmt: skip
    yield from patches(
        "files/output.py", ("tests/files/test_output.py",),
        ("no link in a repository is followed", "        if self.inside[-1]:", "        if False:"),
        ("no directory is a link that was put there meanwhile",
         "os.O_DIRECTORY | os.O_NOFOLLOW", "os.O_DIRECTORY"),
        ("what is below a repository's directory is in the repository",
         "inside = self.inside[-1] and", "inside = False and"),
        ("a repository's top may be without `.git`", "return is_given or", "return"),
        ("no entry of another user in /tmp is used", "if shared and", "if False and"),
        ("git's own files are not written", "if name.lower() in _OF_GIT and", "if False and"),
        ("no own descriptor is written to", "if os.get_inheritable(int(name)):", "if True:"),
        ("what took the file's place is not written to",
         "if self.info is not None and not os.path.samestat", "if False and not os.path.samestat"),
    )  # fmt: skip
    yield from patches(
        "reports/sarif_input.py", ("tests/reports/test_findings.py",),
        ("broken SARIF files have no findings", "except (OSError, ValueError, RecursionError):",
         "except OSError:"),
    )  # fmt: skip
    yield from patches(
        "worker/checks.py", ("tests/worker/test_checks.py",),
        ("SARIF files of checks are bounded", "most=MOST_FINDINGS", "most=10**9"),
        ("SARIF files of checks have no secrets", "self.worker.run.redactor.data(data)", "data"),
    )  # fmt: skip
    yield from patches(
        "cli/reporting.py",
        ("tests/cli/test_reporting.py",),
        ("output in a job's log is guarded", "put(text, out)", r'out.write(f"{text}\n")'),
    )
    yield from patches(
        "runs/webhooks.py",
        ("tests/runs/test_notifications.py",),
        ("notifications are signed", "if key is not None:", "if False:"),
    )
