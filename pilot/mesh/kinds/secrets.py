"""Every Secret of every cluster."""

from __future__ import annotations

from pilot.config.kubernetes.secret import Secret
from pilot.mesh.kinds.view import RegistryView
from pilot.mesh.tables.database import Mesh

secrets = RegistryView[Secret]("Secret", lambda db: db.secrets)


def secret_namespaces(db: Mesh, *names: str) -> tuple[str, ...]:
    """Returns the namespaces that have a Secret of one of these names, in whichever cluster, sorted."""
    return tuple(sorted({key.namespace for name in names for key in secrets.keys(db, "named", ("", name))}))
