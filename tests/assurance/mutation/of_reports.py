"""Protections of reports: text of workers cannot steer the readers of any format."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import (
    Always,
    Give,
    Instead,
    Never,
    Remove,
    Replace,
    Text,
    Unwrap,
    Without,
)


def reports() -> Iterator[Protection]:
    """Reports of runs, in every format."""
    yield from marked(
        ("tests/runs/reports/test_junit.py", "tests/runs/reports/test_html.py"),
        ("XML and HTML are escaped", Replace("escape_html", "str")),
        ("characters that XML forbids are replaced",
         Instead("escape_html(re.sub('x^', '\N{REPLACEMENT CHARACTER}', lines(text)))")),
        ("no CI commands in XML and HTML", Unwrap("sub")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/reports/test_sarif.py", "tests/runs/reports/test_gitlab.py"),
        ("no CI commands in JSON reports", Unwrap(".replace")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/reports/test_markdown.py",),
        ("Markdown is escaped", Unwrap("sub")),
        ("mentions and links are broken", Unwrap("sub")),
        ("a fence is longer than those in the text", Instead("'```'")),
        ("HTML in Markdown is escaped", Unwrap("escape")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/reports/test_github.py",),
        ("properties of annotations are escaped", Text("_escape(text, _PROPERTY)", "text")),
        ("at most ten annotations of a kind", Always()),
        ("a summary stays below its limit", Without("file.tell()")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/reports/test_killed.py",),
        ("no half of an output on a full disk", Remove()),
        ("a summary is appended in one call",
         Replace("file.write(data)", "sum((file.write(bytes([one])) for one in data))")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/reports/test_findings.py",),
        ("findings outside of the repository are dropped", Never("'..' in parts")),
        ("findings of files that are not there are dropped", Always()),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/reports/test_html.py",),
        ("the HTML report forbids scripts and requests", Text("default-src 'none'; ")),
    )  # fmt: skip
    yield from marked(
        ("tests/base/test_outgoing.py",),
        ("no message follows a redirect to another host", Remove()),
        ("no server delays us for longer than allowed", Without("timeout")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/reports/test_killed.py", "tests/base/files/test_atomic.py"),
        ("a file is renamed when it is complete", Instead("name")),
    )  # fmt: skip
    yield from marked(
        ("tests/base/files/test_output.py",),
        ("no link in a repository is followed", Never()),
        ("no directory is a link that was put there meanwhile", Without("os.O_NOFOLLOW")),
        ("what is below a repository's directory is in the repository", Never("self.inside[-1]")),
        ("a repository's top may be without `.git`", Without("is_given")),
        ("no entry of another user in /tmp is used", Never("shared")),
        ("git's own files are not written", Never("name.lower() in _OF_GIT")),
        ("no own descriptor is written to", Always()),
        ("what took the file's place is not written to", Never("self.info is not None")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/reports/test_findings.py",),
        ("broken SARIF files have no findings", Instead("OSError")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/test_checks.py",),
        ("SARIF files of checks are bounded", Give("most=10 ** 9")),
        ("SARIF files of checks have no secrets", Unwrap("data")),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/cli/test_reporting.py",),
        ("output in a job's log is guarded", Instead(r"out.write(f'{text}\n')")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_notifications.py",),
        ("notifications are signed", Never()),
    )  # fmt: skip
