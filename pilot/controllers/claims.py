"""What a proxy outside of Kubernetes says that it is: which entry is its own, and whether it has proved to be that."""

from __future__ import annotations

from pilot.config.kinds.istio import WORKLOAD_ENTRY, WORKLOAD_GROUP
from pilot.config.networking.workload_entry import WorkloadEntryObject
from pilot.config.networking.workload_group import WorkloadGroup
from pilot.config.object import Object, ObjectKey
from pilot.controllers.registered_entry import entry_name
from pilot.lib.spiffe import parse_identity
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.lifecycle import RegistrationError


def claimed_entry(proxy: Proxy) -> ObjectKey | None:
    """Returns the namespace and name of a proxy's entry; None for one that has none."""
    group, entry = proxy.text("AUTO_REGISTER_GROUP"), proxy.text("WORKLOAD_ENTRY")
    name = entry_name(group, proxy) if group else entry
    return ObjectKey(proxy.namespace, name) if name else None


def find_group(db: Mesh, proxy: Proxy, identity_check: bool) -> Object[WorkloadGroup]:
    """Returns the group that a proxy registers itself for. RegistrationError where there is none, or it has not proved to be of it."""
    name = proxy.text("AUTO_REGISTER_GROUP")
    group: Object[WorkloadGroup] | None = WORKLOAD_GROUP.table(db).peek(ObjectKey(proxy.namespace, name))
    if group is None:
        raise RegistrationError(f"there is no WorkloadGroup {proxy.namespace}/{name}", misplaced=True)
    if identity_check:
        check_identity(proxy, group.spec.template.service_account if group.spec.template else "")
    return group


def find_entry(db: Mesh, proxy: Proxy, key: ObjectKey, identity_check: bool) -> Object[WorkloadEntryObject]:
    """Returns the entry that a user has written for a proxy. RegistrationError where there is none, or the proxy has not proved to be of it."""
    rows = WORKLOAD_ENTRY.table(db)
    row = next((rows.peek(each) for each in rows.peek_keys("namespace", key.namespace) if each.object == key), None)
    if row is None:
        raise RegistrationError(f"there is no WorkloadEntry {key.namespace}/{key.name}", misplaced=True)
    if identity_check:
        check_identity(proxy, row.spec.service_account)
    return row


def check_identity(proxy: Proxy, account: str) -> None:
    """Raises RegistrationError where a proxy has not proved to be what it registers as."""
    identity = parse_identity(proxy.identity)
    if identity is None:
        raise RegistrationError("a workload is registered for a verified identity alone")
    if identity.namespace != proxy.namespace or account not in ("", identity.service_account):
        raise RegistrationError(f"{proxy.identity} may not register a workload of {proxy.namespace}/{account or '*'}")
