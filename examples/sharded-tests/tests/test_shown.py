import unittest

import prices


class Shown(unittest.TestCase):
    def test_cents(self):
        self.assertEqual(prices.shown(5), "0.05")

    def test_whole(self):
        self.assertEqual(prices.shown(1200), "12.00")
