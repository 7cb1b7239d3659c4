"""Look at a project: what it is built and tested with, as far as its files say so."""

from orchestrator.survey.findings import Findings
from orchestrator.survey.look import look_at
from orchestrator.survey.tree import Tree
from orchestrator.survey.written import Choice, written

__all__ = ["Choice", "Findings", "Tree", "look_at", "written"]
