"""Prices of a shop, in cents."""


def total(prices):
    """Return the sum of prices."""
    return sum(prices)


def discount(price, percent):
    """Return a price after a discount, rounded down."""
    if not 0 <= percent <= 100:
        raise ValueError(f"no such discount: {percent}")
    return price * (100 - percent) // 100


def shown(price):
    """Return a price for people."""
    return f"{price // 100}.{price % 100:02d}"
