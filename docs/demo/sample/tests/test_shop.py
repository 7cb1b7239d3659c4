import sqlite3
import unittest
from pathlib import Path

from src import auth, billing, users

SCHEMA = Path(__file__).parents[1] / "src" / "schema.sql"


class ShopTest(unittest.TestCase):
    def setUp(self) -> None:
        self.db = sqlite3.connect(":memory:")
        self.addCleanup(self.db.close)
        self.db.executescript(SCHEMA.read_text())
        self.ann = users.add_user(self.db, "ann@example.com", "secret")
        self.bob = users.add_user(self.db, "bob@example.com", "hidden")

    def test_signs_in_with_the_right_password_only(self) -> None:
        assert auth.sign_in(self.db, "ann@example.com", "secret") == self.ann
        assert auth.sign_in(self.db, "ann@example.com", "hidden") is None
        assert auth.sign_in(self.db, "eve@example.com", "secret") is None

    def test_counts_orders_of_every_user(self) -> None:
        billing.add_order(self.db, self.ann, 250)
        billing.add_order(self.db, self.ann, 500)
        counts = users.order_counts(self.db)
        assert counts == {"ann@example.com": 2, "bob@example.com": 0}

    def test_adds_up_what_is_due(self) -> None:
        billing.add_order(self.db, self.ann, 250)
        billing.add_order(self.db, self.bob, 999)
        assert billing.amount_due(self.db, self.ann) == 250


if __name__ == "__main__":
    unittest.main()
