"""Look at a project: what it is built and tested with, as far as its files say so."""

from orchestrator.cli.init.findings import Findings
from orchestrator.cli.init.project_tree import Tree
from orchestrator.cli.init.render import Choice, written
from orchestrator.cli.init.scan import look_at

__all__ = ["Choice", "Findings", "Tree", "look_at", "written"]
