"""The WorkloadEntry of a proxy outside Kubernetes: the claimed entry, the check of its identity, and the object to
create."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pilot.config.kinds.istio import WORKLOAD_ENTRY, WORKLOAD_GROUP
from pilot.config.networking.workload_entry import REGISTRATION_GROUP, WorkloadEntry, WorkloadEntryObject
from pilot.config.networking.workload_group import WorkloadGroup
from pilot.config.object import Object, ObjectKey
from pilot.lib.labels import TUNNEL
from pilot.lib.spiffe import parse_identity
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.workload_registration import RegistrationError

CONTROLLER, CONNECTED, DISCONNECTED = "istio.io/workloadController", "istio.io/connectedAt", "istio.io/disconnectedAt"
HEALTH_CHECKS = "proxy.istio.io/health-checks-enabled"
MAX_NAME_LENGTH = 253
_LOCALITY = "istio-locality"
"""Node label that becomes the entry's `locality` field instead of a label."""


def claimed_entry(proxy: Proxy) -> ObjectKey | None:
    """Return the namespace and name of the WorkloadEntry that a proxy claims, or None if it claims none."""
    group, entry = proxy.text("AUTO_REGISTER_GROUP"), proxy.text("WORKLOAD_ENTRY")
    name = entry_name(group, proxy) if group else entry
    return ObjectKey(proxy.namespace, name) if name else None


def find_group(db: Mesh, proxy: Proxy, identity_check: bool) -> Object[WorkloadGroup]:
    """Return the WorkloadGroup with which a proxy registers.

    Raise RegistrationError if the group does not exist or the proxy's identity does not match.
    """
    name = proxy.text("AUTO_REGISTER_GROUP")
    group: Object[WorkloadGroup] | None = WORKLOAD_GROUP.table(db).peek(ObjectKey(proxy.namespace, name))
    if group is None:
        raise RegistrationError(f"WorkloadGroup {proxy.namespace}/{name} does not exist", not_found=True)
    if identity_check:
        check_identity(proxy, group.spec.template.service_account if group.spec.template else "")
    return group


def find_entry(db: Mesh, proxy: Proxy, key: ObjectKey, identity_check: bool) -> Object[WorkloadEntryObject]:
    """Return the existing WorkloadEntry that a user has created for a proxy.

    Raise RegistrationError if the entry does not exist or the proxy's identity does not match.
    """
    rows = WORKLOAD_ENTRY.table(db)
    row = next((rows.peek(each) for each in rows.peek_keys("namespace", key.namespace) if each.object == key), None)
    if row is None:
        raise RegistrationError(f"WorkloadEntry {key.namespace}/{key.name} does not exist", not_found=True)
    if identity_check:
        check_identity(proxy, row.spec.service_account)
    return row


def check_identity(proxy: Proxy, account: str) -> None:
    """Raise RegistrationError if the proxy's verified identity is not in its namespace or is not that of `account`."""
    identity = parse_identity(proxy.identity)
    if identity is None:
        raise RegistrationError("registering a workload requires a verified identity")
    if identity.namespace != proxy.namespace or account not in ("", identity.service_account):
        raise RegistrationError(f"{proxy.identity} may not register a workload as {proxy.namespace}/{account or '*'}")


def entry_name(group: str, proxy: Proxy) -> str:
    """Return the name of a proxy's WorkloadEntry, which consists of its group, first address and network."""
    network = proxy.text("NETWORK")
    name = f"{group}-{proxy.ips[0].replace(':', '-')}" + (f"-{network}" if network else "")
    return name[-MAX_NAME_LENGTH:].lstrip("-.")


def build_entry(
    group: Object[WorkloadGroup], proxy: Proxy, uid: str, api_version: str, listens_hbone: bool = False
) -> dict[str, Any]:
    """Return a proxy's WorkloadEntry. Its owner is the group, whose UID is `uid`.

    If `uid` is "", the entry has no owner. If proxies can listen for HBONE and this one does, the label tells
    other proxies to use a tunnel.
    """
    template = group.spec.template or WorkloadEntry()
    metadata = group.spec.metadata
    labels = {**template.labels, **(metadata.labels if metadata else {}), **proxy.labels}
    labels.pop(_LOCALITY, None)
    if listens_hbone and proxy.flag("ENABLE_HBONE"):
        labels.setdefault(TUNNEL, "http")
    spec: Mapping[str, Any] = {
        "address": proxy.ips[0],
        "ports": template.ports,
        "labels": labels,
        "weight": template.weight,
        "serviceAccount": template.service_account,
        "network": proxy.text("NETWORK") or template.network,
        "locality": _locality(proxy) or template.locality,
    }
    annotations = {**(metadata.annotations if metadata else {}), REGISTRATION_GROUP: group.name}
    if (proxy.metadata.get("PROXY_CONFIG") or {}).get("readinessProbe"):
        annotations[HEALTH_CHECKS] = "true"
    owner = {"apiVersion": api_version, "kind": "WorkloadGroup", "name": group.name, "uid": uid, "controller": True}
    entry_metadata = {
        "name": entry_name(group.name, proxy),
        "namespace": group.namespace,
        "labels": labels,
        "annotations": annotations,
        **({"ownerReferences": [owner]} if uid else {}),
    }
    set_fields = {field: msgspec.to_builtins(value) for field, value in spec.items() if value}
    return {"apiVersion": api_version, "kind": "WorkloadEntry", "metadata": entry_metadata, "spec": set_fields}


def _locality(proxy: Proxy) -> str:
    parts = (proxy.locality.region, proxy.locality.zone, proxy.locality.subzone)
    return "/".join(parts).rstrip("/")
