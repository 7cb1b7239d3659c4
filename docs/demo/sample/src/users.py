"""Accounts and what they ordered."""

import sqlite3

from src.auth import hash_password


def add_user(db: sqlite3.Connection, email: str, password: str) -> int:
    cursor = db.execute(
        "INSERT INTO users (email, password) VALUES (?, ?)", (email, hash_password(password))
    )
    return int(cursor.lastrowid)


def order_counts(db: sqlite3.Connection) -> dict[str, int]:
    """Count the orders of every user."""
    counts = {}
    for user_id, email in db.execute("SELECT id, email FROM users").fetchall():
        row = db.execute("SELECT count(*) FROM orders WHERE user_id = ?", (user_id,)).fetchone()
        counts[email] = row[0]
    return counts
