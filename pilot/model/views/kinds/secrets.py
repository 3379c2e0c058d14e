"""Every Secret of every cluster."""
from __future__ import annotations

from pilot.model.config.secret import Secret
from pilot.model.inputs import Mesh
from pilot.model.views.kinds.view import RegistryView

secrets = RegistryView[Secret]("Secret", lambda db: db.secrets)


def has_secret(db: Mesh, name: str, namespace: str = "") -> bool:
    """Returns whether a namespace ("": any) has the Secret, in whichever cluster."""
    return bool(secrets.keys(db, "named", (namespace, name)))
