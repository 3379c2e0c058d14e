"""Every Secret of every cluster."""

from __future__ import annotations

from pilot.model.config.secret import Secret
from pilot.model.inputs import Mesh
from pilot.model.views.kinds.view import RegistryView

secrets = RegistryView[Secret]("Secret", lambda db: db.secrets)


def secret_namespaces(db: Mesh, *names: str) -> tuple[str, ...]:
    """Returns the namespaces that have a Secret of one of these names, in whichever cluster, sorted."""
    return tuple(sorted({key.namespace for name in names for key in secrets.keys(db, "named", ("", name))}))
