import unittest

import prices


class Total(unittest.TestCase):
    def test_nothing(self):
        self.assertEqual(prices.total([]), 0)

    def test_several(self):
        self.assertEqual(prices.total([100, 250]), 350)

    def test_single(self):
        self.assertEqual(prices.total([5]), 5)
