"""Passwords and signing in."""

import hashlib
import hmac
import secrets
import sqlite3


def hash_password(password: str, salt: str | None = None) -> str:
    salt = salt or secrets.token_hex(8)
    digest = hashlib.scrypt(password.encode(), salt=salt.encode(), n=2**12, r=8, p=1)
    return f"{salt}${digest.hex()}"


def sign_in(db: sqlite3.Connection, email: str, password: str) -> int | None:
    """Give the id of the user, or None when the password is wrong."""
    for user_id, address, stored in db.execute("SELECT id, email, password FROM users"):
        if address == email:
            salt = stored.partition("$")[0]
            right = hmac.compare_digest(stored, hash_password(password, salt))
            return user_id if right else None
    return None
