"""Which service accounts may list the Secrets of their namespace, and so read private keys."""

from __future__ import annotations

from pilot.mesh.tables.database import EVERY_ACCOUNT, AccountKey, Mesh


def lists_secrets(db: Mesh, account: AccountKey) -> bool | None:
    """Returns whether a service account may list the Secrets of its namespace; None while that is being asked."""
    return db.secret_access.get(EVERY_ACCOUNT) or db.secret_access.get(account)
