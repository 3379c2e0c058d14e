"""Which proxies have modules of users' extensions fetched, and are told the secrets by which their images are pulled."""

from __future__ import annotations

from pilot.config.kinds.istio import TRAFFIC_EXTENSION
from pilot.config.kinds.kubernetes import SECRET
from pilot.config.object import RegistryKey
from pilot.derive import derived
from pilot.mesh.model.credential_key import parse_field
from pilot.mesh.model.facets import ExtensionReaderFacet
from pilot.mesh.security.credential_access import account_of
from pilot.mesh.security.policies import proxy_policies
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy

MODULE_FETCH = "MODULE_FETCH"
"""Metadata by which an agent says that it fetches modules."""
_TYPE, _DATA = "kubernetes.io/dockerconfigjson", ".dockerconfigjson"


@derived
def extension_reader_facet(db: Mesh, node_id: str) -> ExtensionReaderFacet:
    """Returns the extensions of a proxy, and where the secrets of their registries are read for it. A proxy that has not proved to be of its
    namespace is told no secrets. Istio's agent, which fetches, passes on no list of Envoy's extensions; one that passes it on says whether it does.
    """
    proxy = find_proxy(db, node_id)
    account = account_of(db, proxy)
    proved = account is not None and account.namespace == proxy.namespace
    applied = frozenset(proxy_policies(db, node_id).of(TRAFFIC_EXTENSION.id.name))
    fetched = proxy.extensions is None or proxy.flag(MODULE_FETCH)
    return ExtensionReaderFacet(applied, account.cluster if proved and account is not None else None, fetched)


@derived
def pull_secret(db: Mesh, namespace: str, named: str, cluster: str) -> str:
    """Returns the content of the Secret that an extension of a namespace names, in the form of Docker's configuration: that of a cluster, else of
    the own one. It is "" where there is none of the type; a Secret of another namespace is never meant."""
    key = parse_field(named, namespace)
    for where in (cluster, db.settings.registry.cluster_id) if key is not None and key.source != "ConfigMap" else ():
        assert key is not None
        found = SECRET.get(db, RegistryKey(where, namespace, key.name))
        if found is not None and found.spec.type == _TYPE and (content := found.spec.data.get(_DATA)):
            return content.decode(errors="replace")
    return ""
