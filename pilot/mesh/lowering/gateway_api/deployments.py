"""Deployments of Gateways: the template, names, ports and overlays of the objects that are deployed for a Gateway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from pilot.config.gateway_api.gateway import Gateway, Listener
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY, LISTENER_SET
from pilot.config.kinds.kubernetes import CONFIG_MAP, NAMESPACE
from pilot.config.object import Object, ObjectKey, RegistryKey, age
from pilot.derive import derived
from pilot.mesh.gateway_api.gateway_classes import EAST_WEST_CONTROLLER, WAYPOINT_CONTROLLER
from pilot.mesh.gateway_api.gateways import (
    NAME_OVERRIDE,
    SERVICE_ACCOUNT,
    SERVICE_TYPE,
    attached_listener_sets,
    gateway_class_of,
    is_managed,
    listener_port,
)
from pilot.mesh.model.condition import Fault
from pilot.mesh.tables.database import Mesh

CONTROLLER_VERSION = "gateway.istio.io/controller-version"
VERSION = 5
"""The controller version that is written to deployed Gateways. A Gateway with a higher version belongs to a newer
control plane."""
STATUS_PORT = 15021
_MAX_NAME_LENGTH = 63
_QUIC = "-quic"
_OURS = "gateway.networking.k8s.io/"


class DeployedClass(NamedTuple):
    """The injection template, Service type and controller label of the Gateways of a controller."""

    template: str
    service_type: str
    label: str


class DeployedPort(NamedTuple):
    """A port of a Gateway's Service. `protocol` is the application protocol, and `transport` is TCP or UDP."""

    name: str
    port: int
    protocol: str
    transport: str


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs for the deployment of a Gateway.

    - `labels`, `annotations`: those in the Gateway's `infrastructure`, or None if it has none.
    - `overlays`: data of ConfigMaps. Later overlays override earlier ones.
    - `namespace_annotations`: annotations of the namespace, which may set the user that proxies run as.
    - `opts_out_of_ambient`: whether ztunnels do not capture the Pods. A label can enable capture.
    """

    gateway: ObjectKey
    controller: str
    class_name: str
    deployed_class: DeployedClass
    name: str
    account: str
    service_type: str
    ports: tuple[DeployedPort, ...]
    addresses: tuple[tuple[str, str], ...] = ()
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    overlays: tuple[Mapping[str, str], ...] = ()
    namespace_annotations: Mapping[str, str] = {}
    opts_out_of_ambient: bool = False
    fault: Fault | None = None


def deployed_class(db: Mesh, controller: str) -> DeployedClass | None:
    """Return the deployment settings for the Gateways of a controller, or None if this control plane does not deploy
    them. Not memoised."""
    classes = {
        db.settings.gateway_api.controller: ("kube-gateway", "LoadBalancer"),
        WAYPOINT_CONTROLLER: ("waypoint", "ClusterIP"),
        EAST_WEST_CONTROLLER: ("waypoint", "LoadBalancer"),
    }
    return DeployedClass(*classes[controller], controller.replace("/", "-")) if controller in classes else None


@derived
def deployment(db: Mesh, key: ObjectKey) -> Deployment | None:
    """Return the deployment of a Gateway, or None if this control plane does not deploy it.

    It does not deploy a Gateway that does not exist, belongs to another controller or a newer control plane, or uses
    existing Services.
    """
    row, info = KUBERNETES_GATEWAY.get(db, key), gateway_class_of(db, key)
    class_ = deployed_class(db, info.controller) if info is not None else None
    if row is None or info is None or class_ is None or not is_managed(db, row.spec) or _is_newer(row.annotations):
        return None
    default = f"{row.name}-{row.spec.gateway_class_name}" if info.suffix else row.name
    infrastructure = row.spec.infrastructure
    parameters = _own_parameters(db, row)
    overlays = (
        _class_defaults(db, row.spec.gateway_class_name),
        parameters if not isinstance(parameters, Fault) else None,
    )
    namespace = NAMESPACE.get(db, RegistryKey(db.settings.registry.cluster_id, "", key.namespace))
    return Deployment(
        gateway=key,
        controller=info.controller,
        class_name=row.spec.gateway_class_name,
        deployed_class=class_,
        name=row.annotations.get(NAME_OVERRIDE) or default,
        account=row.annotations.get(SERVICE_ACCOUNT) or default,
        service_type=row.annotations.get(SERVICE_TYPE) or class_.service_type,
        ports=tuple(build_ports(_listeners(db, row), db.settings.gateways.quic_listeners)),
        addresses=tuple((address.type, address.value) for address in row.spec.addresses),
        labels=_foreign(infrastructure.labels) if infrastructure is not None and infrastructure.labels else None,
        annotations=_foreign(infrastructure.annotations)
        if infrastructure is not None and infrastructure.annotations
        else None,
        overlays=tuple(overlay for overlay in overlays if overlay is not None),
        namespace_annotations=namespace.annotations if namespace is not None else {},
        opts_out_of_ambient=db.settings.ambient.enabled and db.settings.ambient.waypoints and not info.tunnels,
        fault=parameters if isinstance(parameters, Fault) else None,
    )


@derived
def all_gateways(db: Mesh) -> tuple[ObjectKey, ...]:
    """Return the keys of all Gateways."""
    return KUBERNETES_GATEWAY.all_keys(db)


def _is_newer(annotations: Mapping[str, str]) -> bool:
    """Return True if the controller version of a Gateway is newer than this control plane's, or malformed."""
    version = annotations.get(CONTROLLER_VERSION)
    return version is not None and (not version.isdecimal() or int(version) > VERSION)


def _foreign(entries: Mapping[str, str]) -> Mapping[str, str]:
    """Return labels or annotations without those that the Gateway API itself defines."""
    return {name: value for name, value in entries.items() if not name.startswith(_OURS)}


def _class_defaults(db: Mesh, class_name: str) -> Mapping[str, str] | None:
    """Return the overlay for all Gateways of a class, or None if there is none.

    It is defined by a ConfigMap in the control plane's namespace. If there are several, the oldest takes precedence.
    """
    place = db.settings.registry.namespace, class_name
    keys = [
        key
        for key in CONFIG_MAP.keys(db, "defaults_for_class", place)
        if key.cluster == db.settings.registry.cluster_id
    ]
    rows = [row for key in keys if (row := CONFIG_MAP.get(db, key)) is not None]
    return min(rows, key=age).spec.data if rows else None


def _own_parameters(db: Mesh, row: Object[Gateway]) -> Mapping[str, str] | Fault | None:
    """Return the overlay that a Gateway's parametersRef names, None if there is no parametersRef, or a fault if it is
    invalid."""
    ref = row.spec.infrastructure.parameters_ref if row.spec.infrastructure is not None else None
    if ref is None:
        return None
    if (ref.group, ref.kind) != CONFIG_MAP.id:
        return Fault("InvalidParameters", f"unsupported parametersRef group/kind {ref.group}/{ref.kind}")
    config_map = CONFIG_MAP.get(db, RegistryKey(db.settings.registry.cluster_id, row.namespace, ref.name))
    return (
        config_map.spec.data
        if config_map is not None
        else Fault("InvalidParameters", f"parametersRef ConfigMap {row.namespace}/{ref.name} does not exist")
    )


def _listeners(db: Mesh, row: Object[Gateway]) -> Iterator[Listener]:
    yield from row.spec.listeners
    for key in attached_listener_sets(db, row.key):
        listener_set = LISTENER_SET.get(db, key)
        yield from listener_set.spec.listeners if listener_set is not None else ()


def build_ports(listeners: Iterable[Listener], quic: bool = False) -> Iterator[DeployedPort]:
    """Yield the ports of the Service: the status port, and one port for each distinct listener port.

    With `quic`, HTTPS listeners also have a UDP port, for HTTP/3. Names are unique and have at most 63 characters.
    """
    yield DeployedPort("status-port", STATUS_PORT, "tcp", "TCP")
    numbers, names = {0}, {"status-port"}
    for position, listener in enumerate(listeners):
        port = listener_port(listener)
        if port not in numbers:
            numbers.add(port)
            name = _free_name(listener.name.replace(".", "-") or f"{listener.protocol.lower()}-{position}", port, names)
            names.add(name)
            yield DeployedPort(name, port, listener.protocol.lower(), "TCP")
            if quic and listener.protocol.upper() == "HTTPS":
                quic_name = _free_name(f"{name[: _MAX_NAME_LENGTH - len(_QUIC)]}{_QUIC}", port, names)
                names.add(quic_name)
                yield DeployedPort(quic_name, port, listener.protocol.lower(), "UDP")


def _free_name(preferred: str, port: int, in_use: set[str]) -> str:
    name, suffix = preferred[:_MAX_NAME_LENGTH], f"-{port}"
    while name in in_use:
        name = preferred[: _MAX_NAME_LENGTH - len(suffix)] + suffix
        suffix += "x"
    return name
