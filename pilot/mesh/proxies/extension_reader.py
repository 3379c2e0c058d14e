"""The extensions that a proxy requests by name, and the cluster of their image pull Secrets."""

from __future__ import annotations

import msgspec

from pilot.config.kinds.istio import TRAFFIC_EXTENSION
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.mesh.model.facets import ExtensionReaderFacet, PolicySubjectKey
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.proxies.waypoint import served_services, service_target, waypoint_of
from pilot.mesh.registry.services import service
from pilot.mesh.security.credential_access import account_of
from pilot.mesh.security.policies import policy_keys, proxy_policies, waypoint_subject
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy

MODULE_FETCH = "MODULE_FETCH"
"""Node metadata that is true if the agent fetches modules."""
_KIND = TRAFFIC_EXTENSION.id.name


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
    if proxy.type is NodeType.WAYPOINT:
        extensions = _extensions_of_waypoint(db, waypoint_of(db, node_id), waypoint_subject(db, node_id))
    else:
        extensions = proxy_policies(db, node_id).of(_KIND)
    fetches = proxy.extensions is None or proxy.flag(MODULE_FETCH)
    return ExtensionReaderFacet(
        frozenset(extensions), account.cluster if verified and account is not None else None, fetches
    )


@derived
def _extensions_of_waypoint(db: Mesh, waypoint: ObjectKey, subject: PolicySubjectKey) -> tuple[ObjectKey, ...]:
    """Return the extensions that target a waypoint or at least one of the services that it serves."""
    services = (service(db, ref) for ref in served_services(db, waypoint))
    targets = subject.targets | {service_target(served) for served in services if served is not None}
    return policy_keys(db, _KIND, msgspec.structs.replace(subject, targets=targets))
