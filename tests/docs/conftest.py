"""The demo's sample shop, as the repository for the commands of the documentation."""

from tests.system.agents.conftest import shop

__all__ = ["shop"]
