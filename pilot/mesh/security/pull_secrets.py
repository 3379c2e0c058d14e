"""Image pull Secrets of extensions."""

from __future__ import annotations

from pilot.config.kinds.kubernetes import SECRET
from pilot.config.object import RegistryKey
from pilot.derive import derived
from pilot.mesh.model.credential_key import parse_field
from pilot.mesh.tables.database import Mesh

_TYPE, _DATA = "kubernetes.io/dockerconfigjson", ".dockerconfigjson"


@derived
def pull_secret(db: Mesh, namespace: str, name: str, cluster: str) -> str:
    """Return an extension's image pull Secret as a Docker config, or "" if there is no Secret of this type.

    The Secret is in the extension's namespace. The given cluster takes precedence over the local cluster.
    """
    key = parse_field(name, namespace)
    for where in (cluster, db.settings.registry.cluster_id) if key is not None and key.source != "ConfigMap" else ():
        assert key is not None
        secret = SECRET.get(db, RegistryKey(where, namespace, key.name))
        if secret is not None and secret.spec.type == _TYPE and (content := secret.spec.data.get(_DATA)):
            return content.decode(errors="replace")
    return ""
