"""Invoices."""

import sqlite3


def add_order(db: sqlite3.Connection, user_id: int, cents: int) -> int:
    cursor = db.execute("INSERT INTO orders (user_id, cents) VALUES (?, ?)", (user_id, cents))
    return int(cursor.lastrowid)


def amount_due(db: sqlite3.Connection, user_id: int) -> int:
    """Add up what a user has not paid yet, in cents."""
    due = 0
    for owner, cents, paid in db.execute("SELECT user_id, cents, paid FROM orders"):
        if owner == user_id and not paid:
            due += cents
    return due
