"""The demo's shop, as the documentation's repository."""

from tests.system.agents.conftest import shop

__all__ = ["shop"]
