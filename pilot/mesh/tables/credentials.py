"""Credentials: what the Secrets and ConfigMaps hold that Gateways and DestinationRules name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pilot.config.key_material import Flaw, KeyPair, Roots, find_key_pair, find_roots
from pilot.config.kinds.kubernetes import CONFIG_MAP, SECRET
from pilot.config.object import RegistryKey
from pilot.config.validation.key_material import find_flaw
from pilot.derive import derived
from pilot.mesh.model.credential_key import CredentialKey
from pilot.mesh.tables.database import Mesh

_NO_CREDENTIALS = frozenset(("helm.sh/release.v1", "kubernetes.io/service-account-token"))

Credential = KeyPair | Roots


@derived
def credential(db: Mesh, name: CredentialKey, cluster: str, roots: bool) -> Credential | Flaw | None:
    """Returns the credential of a name for proxies of a cluster, `roots` or a certificate with its key: the first that serves, of that cluster
    and the own one. Where there are none that serve it returns what is wrong with the first one, None where there is no object of the name."""
    own = db.settings.registry.cluster_id
    clusters = (cluster, own) if name.source == "Secret" and cluster != own else (own,)
    found = [one for where in clusters if (one := _in_cluster(db, name, where, roots)) is not None]
    return next((one for one in found if not isinstance(one, Flaw)), found[0] if found else None)


def _in_cluster(db: Mesh, name: CredentialKey, cluster: str, roots: bool) -> Credential | Flaw | None:
    return next((_held(db, name, key, roots) for key in _objects(db, name, cluster)), None)


def _objects(db: Mesh, name: CredentialKey, cluster: str) -> Iterator[RegistryKey]:
    """Yields the objects of a cluster that the name may mean, the first of which counts."""
    for one in name.names:
        key = RegistryKey(cluster, name.namespace, one)
        if _data(db, name, key) is not None:
            yield key


def _data(db: Mesh, name: CredentialKey, key: RegistryKey) -> Mapping[str, bytes] | None:
    if name.source == "ConfigMap":
        return _config_map_data(db, key)
    found = SECRET.get(db, key)
    return found.spec.data if found is not None and found.spec.type not in _NO_CREDENTIALS else None


def _config_map_data(db: Mesh, key: RegistryKey) -> Mapping[str, bytes] | None:
    found = CONFIG_MAP.get(db, key)
    return (
        {**found.spec.binary_data, **{k: v.encode() for k, v in found.spec.data.items()}} if found is not None else None
    )


def _held(db: Mesh, name: CredentialKey, key: RegistryKey, roots: bool) -> Credential | Flaw:
    data = _data(db, name, key)
    assert data is not None
    found = find_roots(data) if roots else find_key_pair(data)
    flaw = found if isinstance(found, Flaw) else find_flaw(found)
    return found if flaw is None else flaw._replace(object=key.name)


def secret_namespaces(db: Mesh, *names: str) -> tuple[str, ...]:
    """Return the namespaces in which any cluster has a Secret with one of these names, sorted."""
    return tuple(sorted({key.namespace for name in names for key in SECRET.keys(db, "named", ("", name))}))
