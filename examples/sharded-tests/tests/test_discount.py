import unittest

import prices


class Discount(unittest.TestCase):
    def test_half(self):
        self.assertEqual(prices.discount(200, 50), 100)

    def test_none(self):
        self.assertEqual(prices.discount(199, 0), 199)

    def test_rounds_down(self):
        self.assertEqual(prices.discount(99, 50), 49)

    def test_too_much(self):
        with self.assertRaises(ValueError):
            prices.discount(100, 101)
