"""Credentials: the contents of Secrets and ConfigMaps that Gateways and DestinationRules refer to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pilot.config.key_material import Flaw, KeyPair, Roots, find_key_pair, find_roots
from pilot.config.kinds.kubernetes import CONFIG_MAP, SECRET
from pilot.config.object import RegistryKey
from pilot.config.validation.key_material import find_flaw
from pilot.derive import derived
from pilot.mesh.model.credential_key import CredentialKey
from pilot.mesh.tables.database import EVERY_ACCOUNT, AccountKey, Mesh

_IGNORED_TYPES = frozenset(("helm.sh/release.v1", "kubernetes.io/service-account-token"))

Credential = KeyPair | Roots


@derived
def credential(db: Mesh, name: CredentialKey, cluster: str, roots: bool) -> Credential | Flaw | None:
    """Return a credential for the proxies in a cluster: root certificates if `roots`, else a certificate and its key.

    A valid credential in the proxies' cluster takes precedence over one in the local cluster. If none is valid, return
    the flaw of the first. Return None if no object has the name.
    """
    local_cluster = db.settings.registry.cluster_id
    clusters = (cluster, local_cluster) if name.source == "Secret" and cluster != local_cluster else (local_cluster,)
    candidates = [candidate for place in clusters if (candidate := _in_cluster(db, name, place, roots)) is not None]
    return next(
        (candidate for candidate in candidates if not isinstance(candidate, Flaw)),
        candidates[0] if candidates else None,
    )


def _in_cluster(db: Mesh, name: CredentialKey, cluster: str, roots: bool) -> Credential | Flaw | None:
    return next((_credential_in(db, name, key, roots) for key in _objects(db, name, cluster)), None)


def _objects(db: Mesh, name: CredentialKey, cluster: str) -> Iterator[RegistryKey]:
    """Yield the existing objects in a cluster that a name may refer to. The first takes precedence."""
    for object_name in name.names:
        key = RegistryKey(cluster, name.namespace, object_name)
        if _data(db, name, key) is not None:
            yield key


def _data(db: Mesh, name: CredentialKey, key: RegistryKey) -> Mapping[str, bytes] | None:
    if name.source == "ConfigMap":
        return _config_map_data(db, key)
    row = SECRET.get(db, key)
    return row.spec.data if row is not None and row.spec.type not in _IGNORED_TYPES else None


def _config_map_data(db: Mesh, key: RegistryKey) -> Mapping[str, bytes] | None:
    row = CONFIG_MAP.get(db, key)
    return {**row.spec.binary_data, **{k: v.encode() for k, v in row.spec.data.items()}} if row is not None else None


def _credential_in(db: Mesh, name: CredentialKey, key: RegistryKey, roots: bool) -> Credential | Flaw:
    data = _data(db, name, key)
    assert data is not None
    material = find_roots(data) if roots else find_key_pair(data)
    flaw = material if isinstance(material, Flaw) else find_flaw(material)
    return material if flaw is None else flaw._replace(object=key.name)


def secret_namespaces(db: Mesh, *names: str) -> tuple[str, ...]:
    """Return the namespaces in which any cluster has a Secret with one of the names, sorted."""
    return tuple(sorted({key.namespace for name in names for key in SECRET.keys(db, "named", ("", name))}))


def has_api_server(db: Mesh) -> bool:
    """Return whether objects are in an API server, which reviews access, and not only in files."""
    return db.secret_access.get(EVERY_ACCOUNT) is None


def lists_secrets(db: Mesh, account: AccountKey) -> bool | None:
    """Return whether a service account may list the Secrets in its namespace, or None while the access review is
    pending."""
    return db.secret_access.get(EVERY_ACCOUNT) or db.secret_access.get(account)
