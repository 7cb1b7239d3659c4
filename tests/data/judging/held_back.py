"""Tests that no candidate sees."""

import unittest

from cachetools import TTLCache, keys


class HeldBackTest(unittest.TestCase):
    def test_types_of_all_arguments(self):
        assert keys.typedkey(7) != keys.typedkey(7.0)
        assert keys.typedkey("a", 2) != keys.typedkey("a", 2.0)

    def test_item_at_its_end(self):
        now = [0]
        cache = TTLCache(maxsize=2, ttl=5, timer=lambda: now[0])
        cache["a"] = 1
        now[0] = 5
        assert "a" not in cache
