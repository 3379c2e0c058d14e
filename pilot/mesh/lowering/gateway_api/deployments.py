"""What is deployed for a Gateway: which template, under which names, with which ports, and what is laid over it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from pilot.config.gateway_api.gateway import Gateway, Listener
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY, LISTENER_SET
from pilot.config.kinds.kubernetes import CONFIG_MAP, NAMESPACE
from pilot.config.object import Object, ObjectKey, RegistryKey, age
from pilot.derive import derived
from pilot.mesh.gateway_api.classes import EAST_WEST_CONTROLLER, WAYPOINT_CONTROLLER
from pilot.mesh.gateway_api.gateways import (
    NAME_OVERRIDE,
    SERVICE_ACCOUNT,
    SERVICE_TYPE,
    attached_sets,
    class_of,
    is_managed,
    port_of,
)
from pilot.mesh.model.condition import Fault
from pilot.mesh.tables.database import Mesh

CONTROLLER_VERSION = "gateway.istio.io/controller-version"
VERSION = 5
"""Whoever deploys a Gateway writes its version there; one that is higher is a newer control plane's."""
STATUS_PORT = 15021
_LONGEST = 63
_OURS = "gateway.networking.k8s.io/"


class DeployedClass(NamedTuple):
    """What Gateways of a controller become: by which template of the injector, behind which type of Service, under which label."""

    template: str
    service_type: str
    label: str


class DeployedPort(NamedTuple):
    name: str
    port: int
    protocol: str


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """What a Gateway is deployed with. `labels` and `annotations` are those of its infrastructure, None where it names none.

    `overlays` are the data of ConfigMaps, the later ones over the earlier; `namespace_annotations` may say who proxies run as. `opts_out`: its
    pods are not to be captured by ztunnels, unless a label says so.
    """

    gateway: ObjectKey
    controller: str
    class_name: str
    of: DeployedClass
    name: str
    account: str
    service_type: str
    ports: tuple[DeployedPort, ...]
    addresses: tuple[tuple[str, str], ...] = ()
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    overlays: tuple[Mapping[str, str], ...] = ()
    namespace_annotations: Mapping[str, str] = {}
    opts_out: bool = False
    fault: Fault | None = None


def deployed_class(db: Mesh, controller: str) -> DeployedClass | None:
    """Returns what Gateways of a controller become; None where they are not deployed. No node of its own."""
    known = {
        db.settings.gateway_api.controller: ("kube-gateway", "LoadBalancer"),
        WAYPOINT_CONTROLLER: ("waypoint", "ClusterIP"),
        EAST_WEST_CONTROLLER: ("waypoint", "LoadBalancer"),
    }
    return DeployedClass(*known[controller], controller.replace("/", "-")) if controller in known else None


@derived
def deployment(db: Mesh, key: ObjectKey) -> Deployment | None:
    """Returns what a Gateway is deployed with; None for one that is not: of another controller, or at a place of its own."""
    row, info = KUBERNETES_GATEWAY.get(db, key), class_of(db, key)
    of = deployed_class(db, info.controller) if info is not None else None
    if row is None or info is None or of is None or not is_managed(db, row.spec) or _is_newer(row.annotations):
        return None
    default = f"{row.name}-{row.spec.gateway_class_name}" if info.suffix else row.name
    wanted = row.spec.infrastructure
    own = _own_parameters(db, row)
    overlays = (_class_defaults(db, row.spec.gateway_class_name), own if not isinstance(own, Fault) else None)
    namespace = NAMESPACE.get(db, RegistryKey(db.settings.registry.cluster_id, "", key.namespace))
    return Deployment(
        gateway=key,
        controller=info.controller,
        class_name=row.spec.gateway_class_name,
        of=of,
        name=row.annotations.get(NAME_OVERRIDE) or default,
        account=row.annotations.get(SERVICE_ACCOUNT) or default,
        service_type=row.annotations.get(SERVICE_TYPE) or of.service_type,
        ports=tuple(build_ports(_listeners(db, row))),
        addresses=tuple((a.type, a.value) for a in row.spec.addresses),
        labels=_foreign(wanted.labels) if wanted is not None and wanted.labels else None,
        annotations=_foreign(wanted.annotations) if wanted is not None and wanted.annotations else None,
        overlays=tuple(one for one in overlays if one is not None),
        namespace_annotations=namespace.annotations if namespace is not None else {},
        opts_out=db.settings.ambient.enabled and db.settings.ambient.waypoints and not info.tunnels,
        fault=own if isinstance(own, Fault) else None,
    )


@derived
def all_gateways(db: Mesh) -> tuple[ObjectKey, ...]:
    """Returns every Gateway."""
    return KUBERNETES_GATEWAY.all_keys(db)


def _is_newer(annotations: Mapping[str, str]) -> bool:
    """Returns whether a control plane that we do not know deploys a Gateway."""
    said = annotations.get(CONTROLLER_VERSION)
    return said is not None and (not said.isdecimal() or int(said) > VERSION)


def _foreign(said: Mapping[str, str]) -> Mapping[str, str]:
    """Returns labels or annotations without those that belong to the Gateway API."""
    return {name: value for name, value in said.items() if not name.startswith(_OURS)}


def _class_defaults(db: Mesh, class_name: str) -> Mapping[str, str] | None:
    """Returns what an installation lays over all Gateways of a class; of several ConfigMaps the oldest counts."""
    place = db.settings.registry.namespace, class_name
    own = [
        key
        for key in CONFIG_MAP.keys(db, "defaults_for_class", place)
        if key.cluster == db.settings.registry.cluster_id
    ]
    rows = [row for key in own if (row := CONFIG_MAP.get(db, key)) is not None]
    return min(rows, key=age).spec.data if rows else None


def _own_parameters(db: Mesh, row: Object[Gateway]) -> Mapping[str, str] | Fault | None:
    """Returns what a Gateway's parameters lay over what is deployed."""
    ref = row.spec.infrastructure.parameters_ref if row.spec.infrastructure is not None else None
    if ref is None:
        return None
    if (ref.group, ref.kind) != CONFIG_MAP.id:
        return Fault("InvalidParameters", f"parametersRef of {ref.group}/{ref.kind}")
    found = CONFIG_MAP.get(db, RegistryKey(db.settings.registry.cluster_id, row.namespace, ref.name))
    return (
        found.spec.data
        if found is not None
        else Fault("InvalidParameters", f"parametersRef ConfigMap {row.namespace}/{ref.name} does not exist")
    )


def _listeners(db: Mesh, row: Object[Gateway]) -> Iterator[Listener]:
    yield from row.spec.listeners
    for key in attached_sets(db, row.key):
        found = LISTENER_SET.get(db, key)
        yield from found.spec.listeners if found is not None else ()


def build_ports(listeners: Iterable[Listener]) -> Iterator[DeployedPort]:
    """Yields the ports of a Service: that of the status, and one for each port that a listener has. Their names are unique, and short enough."""
    yield DeployedPort("status-port", STATUS_PORT, "tcp")
    numbers, names = {0}, {"status-port"}
    for n, listener in enumerate(listeners):
        port = port_of(listener)
        if port not in numbers:
            numbers.add(port)
            name = _free_name(listener.name.replace(".", "-") or f"{listener.protocol.lower()}-{n}", port, names)
            names.add(name)
            yield DeployedPort(name, port, listener.protocol.lower())


def _free_name(wanted: str, port: int, taken: set[str]) -> str:
    name, suffix = wanted[:_LONGEST], f"-{port}"
    while name in taken:
        name = wanted[: _LONGEST - len(suffix)] + suffix
        suffix += "x"
    return name
