"""Secrets, by name."""
from __future__ import annotations

from pilot.model.inputs import Mesh


def has_secret(db: Mesh, name: str, namespace: str = "") -> bool:
    """Whether a namespace has the Secret, in whichever cluster; "" for any namespace."""
    return bool(db.secrets.keys("named", (namespace, name)))
