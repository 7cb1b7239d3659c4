"""All protections, by area."""

from tests.assurance.mutation import (
    of_broker,
    of_cleanup,
    of_containers,
    of_git,
    of_harvests,
    of_runs,
    of_settings,
    of_sharing,
    of_workflows,
)
from tests.assurance.mutation.protection import Protection

PROTECTIONS: dict[str, tuple[Protection, ...]] = {
    "container": tuple(of_containers.container()),
    "engine": tuple(of_containers.engine()),
    "network": tuple(of_containers.guard()),
    "broker": tuple(of_broker.broker()),
    "images": tuple(of_containers.images()),
    "services": tuple(of_containers.services()),
    "git": tuple(of_git.gate()),
    "repository": tuple(of_git.repository()),
    "comparisons": tuple(of_git.comparisons()),
    "searches": tuple(of_git.searches()),
    "harvest": tuple(of_harvests.harvest()),
    "kept": tuple(of_harvests.kept()),
    "integration": tuple(of_harvests.integration()),
    "helper": tuple(of_harvests.helper()),
    "workspace": tuple(of_runs.workspace()),
    "limits": tuple(of_runs.limits()),
    "words": tuple(of_runs.words()),
    "secrets": tuple(of_runs.secrets()),
    "caches": tuple(of_runs.caches()),
    "sharing": tuple(of_sharing.sharing()),
    "triggers": tuple(of_runs.triggers()),
    "cleanup": tuple(of_cleanup.cleanup()),
    "names": tuple(of_cleanup.names()),
    "settings": tuple(of_settings.settings()),
    "doors": tuple(of_settings.doors()),
    "preflight": tuple(of_settings.preflight()),
    "workflows": tuple(of_workflows.workflows()),
}
