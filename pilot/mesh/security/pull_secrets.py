"""Image pull Secrets of extensions, and the proxies that may read them."""

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
"""Node metadata that is true if the agent fetches modules."""
_TYPE, _DATA = "kubernetes.io/dockerconfigjson", ".dockerconfigjson"


@derived
def extension_reader_facet(db: Mesh, node_id: str) -> ExtensionReaderFacet:
    """Return the extensions of a proxy, the cluster of their image pull Secrets, and whether the proxy's agent fetches
    modules.

    Proxies without a verified identity in their namespace receive no Secrets. Istio's agent fetches modules, and does
    not forward Envoy's list of extensions. Agents that forward the list declare whether they fetch modules.
    """
    proxy = find_proxy(db, node_id)
    account = account_of(db, proxy)
    verified = account is not None and account.namespace == proxy.namespace
    extensions = frozenset(proxy_policies(db, node_id).of(TRAFFIC_EXTENSION.id.name))
    fetches = proxy.extensions is None or proxy.flag(MODULE_FETCH)
    return ExtensionReaderFacet(extensions, account.cluster if verified and account is not None else None, fetches)


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
