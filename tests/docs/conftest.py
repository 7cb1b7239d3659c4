"""The demo's shop, as the documentation's repository."""

from tests.e2e.conftest import shop

__all__ = ["shop"]
