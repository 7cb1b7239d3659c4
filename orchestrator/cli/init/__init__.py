"""Detect how a project is built and tested, from its files."""

from orchestrator.cli.init.findings import Findings
from orchestrator.cli.init.project_tree import Tree
from orchestrator.cli.init.render import Choice, render
from orchestrator.cli.init.scan import look_at

__all__ = ["Choice", "Findings", "Tree", "look_at", "render"]
