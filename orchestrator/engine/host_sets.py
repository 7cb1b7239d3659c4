"""Collect the named sets of hosts for allow-lists, such as the hosts of the git remotes."""

from collections.abc import Iterator, Mapping

from orchestrator.gateway.host_sets import HostSets
from orchestrator.gateway.package_managers import FoundUrl, Machine
from orchestrator.git.repository import Repository


def host_sets(
    own: Mapping[str, tuple[str, ...]], repository: Repository, environ: Mapping[str, str]
) -> HostSets:
    """Return the sets that allow-lists may name.

    Args:
        own: The sets of a configuration file.
        repository: The repository, whose remotes are the set `git`.
        environ: The caller's environment variables.
    """

    def remotes() -> Iterator[FoundUrl]:
        for line in repository.git.text("remote", "--verbose").splitlines():
            name, _, rest = line.partition("\t")
            yield FoundUrl(rest.rpartition(" ")[0], f"remote {name}")

    return HostSets(own=own, machine=Machine(environ=environ), remotes=remotes)
