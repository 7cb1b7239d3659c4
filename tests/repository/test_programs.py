"""Tests that every setting by which git starts a program is decided on, and starts none.

`orchestrator/repository/programs.py` has the list; the other settings of git are listed here.
"""

import os
import re
from pathlib import Path

import pytest

from orchestrator.base.errors import GitCommandError
from orchestrator.repository.git.command import Git, version
from orchestrator.repository.git.defaults import CONFIG
from orchestrator.repository.programs import PROGRAMS, Use, harmless, in_tree, leads_into
from orchestrator.repository.repository import Repository
from tests.repository.test_disarm import worktree_of
from tests.support.repository import git

HOOKS_OF_CONFIGURATION = (2, 54)
"""First version of git that runs hooks which the configuration defines."""

# Settings that name no program, by their decision.
VALUES = (
    # Sections of which no setting names a program.
    r"(add|advice|am|apply|attr|author|bitmappseudomerge|blame|branch|bundle|checkout|clean|clone)\..*",
    r"(color|column|commitgraph|committer|credentialcache|credentialstore|fastimport|feature)\..*",
    r"(fetch|format|fsck|fsmonitor|gitweb|grep|gui|http|i18n|index|log|lsrefs|mailinfo|mailmap)\..*",
    r"(notes|pack|pretty|promisor|pull|push|rebase|receive|reftable|remotes|repack|replay)\..*",
    r"(rerere|revert|safe|showbranch|sideband|sparse|splitindex|ssh|stash|status|tag|trace2)\..*",
    r"(transfer|uploadarchive|uploadpackfilter|url|user|versionsort|worktree|dir)\..*",
    # Settings of sections that also have programs.
    r"core\.(abbrev|alternaterefsprefixes|attributesfile|autocrlf|bare|bigfilethreshold)",
    r"core\.(checkroundtripencoding|checkstat|comment(char|string)|commitgraph|compression)",
    r"core\.(createobject|deltabasecachelimit|eol|excludesfile|filemode|filesreflocktimeout)",
    r"core\.(fsmonitorhookversion|fsync|fsyncmethod|fsyncobjectfiles|hidedotfiles|ignorecase)",
    r"core\.(ignorestat|lockfilepid|logallrefupdates|loosecompression|maxtreedepth|multipackindex)",
    r"core\.(notesref|packedgit(limit|windowsize)|packedrefstimeout|precomposeunicode)",
    r"core\.(prefersymlinkrefs|preloadindex|protect(hfs|ntfs)|quotepath|repositoryformatversion)",
    r"core\.(restrictinheritedhandles|safecrlf|sharedrepository|sparsecheckout(cone)?|splitindex)",
    r"core\.(symlinks|trustctime|unsetenvvars|untrackedcache|usereplacerefs|warnambiguousrefs)",
    r"core\.(whitespace|worktree)",
    r"commit\.(cleanup|gpgsign|status|template|verbose)",
    r"credential\.(interactive|protectprotocol|sanitizeprompt|usehttppath|username)",
    r"diff\.<driver>\.(binary|cachetextconv|trustexitcode|wordregex|xfuncname)",
    r"diff\.(algorithm|autorefreshindex|colormoved(ws)?|context|dirstat|(dst|src)prefix)",
    r"diff\.(ignoresubmodules|indentheuristic|interhunkcontext|mnemonicprefix|noprefix|orderfile)",
    r"diff\.(relative|renamelimit|renames|statgraphwidth|statnamewidth|submodule)",
    r"diff\.(suppressblankempty|trustexitcode|wordregex|wserrorhighlight)",
    r"difftool\.(guidefault|prompt|trustexitcode)",
    r"filter\.<driver>\.required",
    r"gc\.(<pattern>\.)?(aggressive(depth|window)|auto|autodetach|autopacklimit|bigpackthreshold)",
    r"gc\.(cruftpacks|logexpiry|maxcruftsize|packrefs|pruneexpire|repackfilter(to)?|rerere\w+)",
    r"gc\.(<pattern>\.)?(reflogexpire(unreachable)?|worktreepruneexpire|writecommitgraph)",
    r"gpg\.(format|mintrustlevel|ssh\.(allowedsignersfile|revocationfile))",
    r"guitool\.<name>\.(argprompt|confirm|needsfile|noconsole|norescan|prompt|revprompt)",
    r"guitool\.<name>\.(revunmerged|title)",
    r"help\.(autocorrect|format|htmlpath)",
    r"hook\.(<event>\.)?(jobs|enabled)",
    r"imap\.(authmethod|folder|host|pass|port|preformattedhtml|sslverify|user)",
    r"init\.(defaultbranch|defaultobjectformat|defaultrefformat|defaultsubmodulepathconfig)",
    r"instaweb\.(local|port)",
    r"interactive\.singlekey",
    r"maintenance\.(<task>\.)?(auto|autodetach|enabled|schedule|strategy)",
    r"maintenance\.[a-z-]+\.(auto|batchsize|splitfactor)",
    r"merge\.<driver>\.(name|recursive)",
    r"merge\.(autostash|branchdesc|conflictstyle|defaulttoupstream|directoryrenames|ff|log)",
    r"merge\.(renamelimit|renames|renormalize|stat|suppressdest|verbosity|verifysignatures)",
    r"mergetool\.(<tool>\.|<variant>\.|meld\.)?(guidefault|hideresolved|keepbackup|keeptemporaries)",
    r"mergetool\.(<tool>\.|<variant>\.|meld\.)?(prompt|writetotemp|trustexitcode|layout)",
    r"mergetool\.(meld|vimdiff)\.(hasoutput|useautomerge|layout)",
    r"protocol\.(allow|version)",
    r"remote\.<name>\.(fetch|followremotehead|mirror|negotiation\w+|partialclonefilter|promisor)",
    r"remote\.<name>\.(proxy|proxyauthmethod|prune|prunetags|push|pushurl|serveroption)",
    r"remote\.<name>\.(skipdefaultupdate|skipfetchall|tagopt|url)",
    r"remote\.pushdefault",
    r"sendemail\.(aliasfiletype|aliasesfile|annotate|bcc|cc|chainreplyto|confirm|envelopesender)",
    r"sendemail\.(forbidsendmailvariables|from|identity|imapsentfolder|mailmap(\.\w+)?|multiedit)",
    r"sendemail\.(outlookidfix|signedoffbycc|smtp(batchsize|domain|encryption|pass|relogindelay))",
    r"sendemail\.smtp(serveroption|serverport|ssl|sslcertpath|sslclientcert|sslclientkey|user)",
    r"sendemail\.(suppresscc|suppressfrom|thread|to|transferencoding|useimaponly|validate|xmailer)",
    r"submodule\.(<name>\.)?(active|branch|fetchrecursesubmodules|gitdir|ignore|url|recurse)",
    r"submodule\.(alternateerrorstrategy|alternatelocation|fetchjobs|propagatebranches)",
    r"tar\.umask",
    r"trailer\.(<\w+(-\w+)?>\.)?(ifexists|ifmissing|key|where|separators)",
    r"uploadpack\.(allow\w+|hiderefs|keepalive)",
    # They come with the settings of the file that they name, which git lists.
    r"include(if\.<condition>)?\.path",
    r"hasconfig:remote\.\*\.url",
    r"extensions\..*",
)
NEVER_RUN = {
    r"alias\..*": "no alias replaces a command of git itself, and others are not run",
    r"completion\.commands": "only shells read it",
    r"(diff|merge)\.(gui)?tool": "`git difftool` and `git mergetool` are not run",
    r"gitcvs\..*": "`git cvsserver` is not run",
    r"(help|web|instaweb)\.(browser|httpd|modulepath)": "no help page is shown",
    r"man\.viewer": "no help page is shown",
    r"init\.templatedir": "`git init` and `git clone` are not run",
    r"sendemail\.<identity>\..*": "`git send-email` is not run",
    r"rebase\.instructionformat": "`git rebase` is not run",
    r"credential\.<url>\..*": "its `helper` is in the list of programs",
    r"uploadpack\.packobjectshook": (
        "git reads it only from the user's own files; it runs for a remote on this machine, in the "
        "remote's directory, as in the user's own fetch"
    ),
    r"gc\.recentobjectshook": "no objects are removed",
}
"""Settings that name a program and are not overridden, each with the reason."""


def decision(key: str) -> str | None:
    """Return what is decided on a setting, as `git help --config` spells it; None if nothing is."""
    section, *names, last = key.split(".")
    name = ".".join([section.lower(), *names, last.lower()])
    for pattern in (*CONFIG, *NEVER_RUN):
        if re.fullmatch(pattern if pattern in NEVER_RUN else re.escape(pattern.lower()), name):
            return "never run" if pattern in NEVER_RUN else "set"
    if harmless(name):
        return "overridden"
    return "a value" if any(re.fullmatch(pattern, name) for pattern in VALUES) else None


def test_every_setting_that_git_knows_is_decided_on() -> None:
    known = Git(None).text("help", "--config").splitlines()
    keys = [key for key in known if re.fullmatch(r"[a-z][^ ]*\.[^ ]+", key, re.IGNORECASE)]
    assert len(keys) > 500
    assert [key for key in keys if decision(key) is None] == []


_SAMPLES = """
core.hooksPath core.fsmonitor core.editor core.pager core.sshCommand core.askPass
core.gitProxy core.alternateRefsCommand sequence.editor filter.NAME.clean
filter.NAME.smudge filter.NAME.process filter.NAME.required diff.external
diff.NAME.textconv diff.NAME.command merge.NAME.driver hook.NAME.command hook.NAME.event
pager.log gpg.program gpg.openpgp.program gpg.x509.program gpg.ssh.program
gpg.ssh.defaultKeyCommand credential.helper credential.https://NAME.helper
remote.NAME.uploadpack remote.NAME.receivepack remote.NAME.vcs protocol.NAME.allow
protocol.ext.allow submodule.NAME.update interactive.diffFilter gc.recentObjectsHook
sendemail.smtpServer sendemail.NAME.smtpServer sendemail.toCmd imap.tunnel man.NAME.cmd
browser.NAME.path difftool.NAME.cmd mergetool.NAME.cmd guitool.NAME.cmd
trailer.NAME.command trailer.NAME.cmd lfs.extension.NAME.clean
lfs.customtransfer.NAME.path tar.NAME.command uploadpack.packObjectsHook
later.NAME.startCommand later.signProgram
"""
SAMPLES = _SAMPLES.split()
NAMES = ("plain", "a=b", 'a.b "c" d', "é= x")


@pytest.mark.parametrize("name", NAMES)
def test_configured_programs_are_overridden(repo: Path, name: str) -> None:
    keys = [sample.replace("NAME", name) for sample in SAMPLES]
    for key in keys:
        git(repo, "config", key, "touch MARK")
    ours = Repository(repo).git
    for key, sample in zip(keys, SAMPLES, strict=True):
        section, *_, last = sample.split(".")
        plain = key.replace(f"{section}.", f"{section.lower()}.")
        expected = harmless(plain.removesuffix(last) + last.lower()) or {key: CONFIG.get(key)}
        for other, value in expected.items():
            assert ours.text("config", "--get", other) == CONFIG.get(sample, value), key


def test_every_program_has_a_sample() -> None:
    known = [".".join([s.split(".")[0].lower(), *s.split(".")[1:-1], s.split(".")[-1].lower()])
             for s in SAMPLES]  # fmt: skip
    assert [p for p, _, _ in PROGRAMS if not any(re.fullmatch(p, key) for key in known)] == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scope", ["--local", "--global", "--worktree"])
def test_hooks_of_the_configuration_do_not_run(
    repo: Path, tmp_path: Path, name: str, scope: str
) -> None:
    mark = tmp_path / "MARK"
    git(repo, "config", "extensions.worktreeConfig", "true")
    for event in ("reference-transaction", "post-index-change"):
        git(repo, "config", scope, "--add", f"hook.{name}.event", event)
    git(repo, "config", scope, f"hook.{name}.command", f"touch '{mark}'; true")
    ours = Repository(repo).git
    ours.run("update-ref", "refs/heads/new", "HEAD")
    ours.run("read-tree", "HEAD")
    assert not mark.exists()
    # Control: the user's git runs the hook.
    git(repo, "update-ref", "refs/heads/other", "HEAD")
    assert mark.exists() == (version() >= HOOKS_OF_CONFIGURATION)


def test_settings_that_a_tracked_file_adds_later_are_overridden(repo: Path, tmp_path: Path) -> None:
    """The configuration includes a file of the tree, and a merge brings another version of it."""
    mark = tmp_path / "MARK"
    git(repo, "config", "include.path", "../.gitconfig")
    repository = Repository(repo)
    assert "filter.late.clean" not in repository.git_config
    (repo / ".gitconfig").write_text(f"[filter \"late\"]\n\tclean = touch '{mark}'; cat\n")
    (repo / ".gitattributes").write_text("* filter=late\n")
    (repo / "a.txt").write_text("changed\n")
    repository.git.run("add", "-A")
    assert not mark.exists()
    assert "filter.late.clean" in repository.git_config
    git(repo, "add", "--renormalize", "a.txt")
    assert mark.exists()


def test_settings_of_another_branch_are_overridden(repo: Path, tmp_path: Path) -> None:
    mark = tmp_path / "MARK"
    (tmp_path / "more").write_text(f"[filter \"late\"]\n\tclean = touch '{mark}'; cat\n")
    git(repo, "config", "includeIf.onbranch:topic.path", str(tmp_path / "more"))
    repository = Repository(repo)
    assert "filter.late.clean" not in repository.git_config
    git(repo, "checkout", "-q", "-b", "topic")
    (repo / ".gitattributes").write_text("* filter=late\n")
    repository.git.run("add", "-A")
    assert not mark.exists()


def test_filters_run_for_the_users_own_checkout(repo: Path) -> None:
    git(repo, "config", "filter.upper.clean", "tr a-z A-Z")
    (repo / ".git" / "info" / "attributes").write_text("a.txt filter=upper\n")
    (repo / "a.txt").write_text("other\n")
    ours = Repository(repo).git
    ours.within(None, use=Use.ADD).run("add", "a.txt")
    assert git(repo, "show", ":a.txt") == "OTHER"
    ours.run("add", "--renormalize", "a.txt")
    assert git(repo, "show", ":a.txt") == "other"


@pytest.mark.parametrize("command", ["tr a-z A-Z", "./upper.sh"])
def test_only_filters_outside_of_the_tree_run_for_a_comparison(repo: Path, command: str) -> None:
    (repo / "upper.sh").write_text("#!/bin/sh\ntr a-z A-Z\n")
    (repo / "upper.sh").chmod(0o755)
    git(repo, "config", "filter.upper.clean", command)
    git(repo, "config", "filter.upper.required", "true")
    (repo / ".git" / "info" / "attributes").write_text("a.txt filter=upper\n")
    (repo / ".git" / "info" / "exclude").write_text("upper.sh\n")
    git(repo, "add", "--renormalize", "a.txt")
    git(repo, "commit", "-qm", "upper")
    os.utime(repo / "a.txt", (1, 1))
    assert Repository(repo).is_dirty() == (command == "./upper.sh")


@pytest.mark.parametrize("place", ["configuration", "variable"])
@pytest.mark.parametrize("where", ["elsewhere", "in the tree"])
def test_only_programs_outside_of_the_tree_reach_a_remote(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, where: str
) -> None:
    mark = tmp_path / "MARK"
    program = (tmp_path if where == "elsewhere" else repo) / "ssh.sh"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\nexit 1\n")
    program.chmod(0o755)
    # Plain `ssh` fails at once, and sends nothing.
    monkeypatch.setenv("PATH", f"{_failing(tmp_path / 'bin', 'ssh')}:{os.environ['PATH']}")
    command = str(program) if where == "elsewhere" else "./ssh.sh"
    if place == "variable":
        monkeypatch.setenv("GIT_SSH_COMMAND", command)
    else:
        git(repo, "config", "core.sshCommand", command)
    asking = Git(repo / ".git", work_tree=repo, use=Use.REMOTES)
    with pytest.raises(GitCommandError):
        asking.run("ls-remote", "ssh://host.invalid/x")
    assert mark.exists() == (where == "elsewhere")


def _failing(place: Path, name: str) -> Path:
    place.mkdir()
    (place / name).write_text("#!/bin/sh\nexit 255\n")
    (place / name).chmod(0o755)
    return place


def test_git_is_not_looked_up_in_the_work_tree(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "MARK"
    for place in (repo, repo / "bin"):
        place.mkdir(exist_ok=True)
        (place / "git").write_text(f"#!/bin/sh\ntouch '{mark}'\n")
        (place / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"bin:.::./bin:{os.environ['PATH']}")
    assert Git(repo / ".git", work_tree=repo).text("rev-parse", "HEAD")
    assert not mark.exists()


def test_own_git_directories_have_no_settings_of_the_user(repo: Path, home: Path) -> None:
    (home / ".gitconfig").write_text("[core]\n\tquotePath = false\n")
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "config").write_text("[core]\n\tabbrev = 10\n")
    for key in ("core.quotePath", "core.abbrev"):
        assert Git(repo / ".git").text("config", "--get", key)
        with pytest.raises(GitCommandError):
            Git(repo / ".git", sealed=True).text("config", "--get", key)


@pytest.mark.parametrize("kind", ["normal", "event", "perf"])
def test_commands_leave_no_trace(repo: Path, home: Path, tmp_path: Path, kind: str) -> None:
    trace = tmp_path / "trace"
    (home / ".gitconfig").write_text(f"[trace2]\n\t{kind}Target = {trace}\n")
    Repository(repo).git.run("rev-parse", "HEAD")
    assert not trace.exists()
    git(repo, "rev-parse", "HEAD")
    assert trace.exists()


def test_address_of_a_remote_is_no_command(repo: Path, tmp_path: Path) -> None:
    git(repo, "config", "protocol.ext.allow", "always")
    asking = Git(repo / ".git", work_tree=repo, use=Use.REMOTES)
    with pytest.raises(GitCommandError, match="transport 'ext' not allowed"):
        asking.run("ls-remote", f"ext::touch {tmp_path}/MARK")


@pytest.mark.parametrize(
    "command",
    ["ssh -i ~/.ssh/key -o ControlPath=%d/.ssh/%r", "!/usr/bin/gh auth git-credential",
     "!gh auth x", "$HOME/bin/helper", '"${HOME}/bin/helper" --url https://example.org/x', "store",
     "git-lfs %f"],
)  # fmt: skip
def test_program_elsewhere_is_recognised(repo: Path, command: str) -> None:
    (repo / "auth").mkdir()
    assert not leads_into(command, repo)


@pytest.mark.parametrize(
    "command", ["./x", "!tools/x", "python a.txt", "python src", "$PWD/x", "`pwd`/x", "sh -c ./x"]
)
def test_program_of_the_tree_is_recognised(repo: Path, command: str) -> None:
    (repo / "src" / "__main__.py").touch()
    assert leads_into(command, repo)


@pytest.mark.parametrize(
    ("command", "is_off"),
    [("npx lint-staged", True), ("make check", True), ("./x", True), ("tools/x", True),
     ("/usr/bin/env ./x", True), ("sh -c 'true'", True), ("~/bin/hook", False),
     ("/opt/hook", False)],
)  # fmt: skip
def test_hook_that_needs_the_tree_is_disabled_in_worktrees(
    repo: Path, command: str, is_off: bool
) -> None:
    configured = [("hook.a.event", "pre-commit"), ("hook.a.command", command)]
    assert list(in_tree(configured, repo)) == (["hook.a.command"] if is_off else [])


def test_hook_of_a_worktree_is_disabled_for_the_users_git(repo: Path, tmp_path: Path) -> None:
    mark = tmp_path / "MARK"
    git(repo, "config", "hook.a.event", "post-index-change")
    git(repo, "config", "hook.a.command", "./hook.sh")
    path = worktree_of(repo).path
    (path / "hook.sh").write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    (path / "hook.sh").chmod(0o755)
    git(path, "add", "-A")
    assert not mark.exists()
    # Control: where the hook is enabled, the user's git runs it.
    git(path, "-c", "hook.a.enabled=true", "add", "--renormalize", "a.txt")
    assert mark.exists() == (version() >= HOOKS_OF_CONFIGURATION)
