"""Checks that AuthorizationPolicies with HTTP attributes apply to ports at which sidecars see requests."""

from __future__ import annotations

from itertools import islice

from pilot.config.kinds.istio import GATEWAY, SERVICE_ENTRY, SIDECAR
from pilot.config.object import Object
from pilot.config.problem import Problems, warning
from pilot.config.security.authorization_policy import AuthorizationPolicy, Rule, dry_run
from pilot.derive import derived
from pilot.mesh.analysis.connection_policy import captures
from pilot.mesh.analysis.opaque_port import describe_ports, opaque_ports, ports_of, remedy_for_http
from pilot.mesh.analysis.selector import Labels, label_sets, router_labels
from pilot.mesh.model.request_only_fields import RequestOnlyField, request_only_fields
from pilot.mesh.model.service import Port, Service
from pilot.mesh.registry.service_targets import selecting_services
from pilot.mesh.security.policies import GATEWAY_NAME
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import root_namespace

_MAX_WORKLOADS = 100
"""Maximum number of label sets of workloads whose Services are read. Policies with more of them are not checked."""
_CONNECTION_FIELDS = ("remoteIpBlocks", "notRemoteIpBlocks", "trustDomains", "notTrustDomains")
"""Fields that ztunnels cannot evaluate for connections, but sidecars can."""
_LABELS_OF_GATEWAYS = (GATEWAY_NAME, "istio")
_OUTCOMES = {
    "ALLOW": "allows nothing, and connections that no other rule allows are denied",
    "DENY": "ignores them and denies every connection that its other conditions match",
}
ServicePort = tuple[Service, Port]


def check_policy_protocols(db: Mesh, o: Object[AuthorizationPolicy]) -> Problems:
    """Yield a problem for each rule with HTTP attributes that applies only to TCP and TLS ports of sidecars.

    Paths are below the spec. Gateways and waypoints have ports of their own.
    """
    spec = o.spec
    rules = {index: fields for index, rule in enumerate(spec.rules) if (fields := _http_fields(rule))}
    if not rules or spec.action not in _OUTCOMES or dry_run(o.annotations) or spec.target_ref or spec.target_refs:
        return
    ports = _ports_of_sidecars(db, o)
    opaque = opaque_ports(ports)
    for index, fields in rules.items():
        numbers = _numbers(spec.rules[index])
        named = [(one, port) for one, port in ports if (port.target or port.number) in numbers]
        reached = opaque or (_all_opaque(named, numbers) if numbers else ())
        if reached:
            names = ", ".join(dict.fromkeys(field.name for field in fields))
            text = (
                f"{describe_ports(reached)}, so there are no requests with {names}, and this rule "
                f"{_OUTCOMES[spec.action]}; if the port serves HTTP, {remedy_for_http(*reached[0])}; otherwise remove "
                "the field"
            )
            yield warning("no-effect", f"rules[{index}].{fields[0].path}", text)


def _http_fields(rule: Rule) -> list[RequestOnlyField]:
    """Return the fields of a rule that sidecars evaluate only for requests."""
    return [field for field in request_only_fields(rule) if _is_http(field)]


def _is_http(field: RequestOnlyField) -> bool:
    return field.name.startswith("request.") if field.path.endswith(".key") else field.name not in _CONNECTION_FIELDS


def _numbers(rule: Rule) -> set[int]:
    """Return the ports of workloads to which a rule is restricted, or an empty set if it applies to all ports."""
    lists = [to.operation.ports if to.operation is not None else () for to in rule.to]
    return {int(text) for ports in lists for text in ports} if all(lists) else set()


def _all_opaque(ports: list[ServicePort], numbers: set[int]) -> tuple[ServicePort, ...]:
    """Return the ports of Services that target the numbers, if each number is a TCP or TLS port."""
    is_complete = {port.target or port.number for _, port in ports} == numbers
    return tuple(ports) if is_complete and all(port.protocol.is_tcp for _, port in ports) else ()


def _ports_of_sidecars(db: Mesh, o: Object[AuthorizationPolicy]) -> list[ServicePort]:
    """Return the ports of the Services of all workloads of a policy, or [] if other objects may determine their ports.

    Ports of gateways follow from Gateways. Sidecar objects and ServiceEntries may declare further ports.
    """
    namespace = o.namespace
    labels = frozenset(o.spec.selector.match_labels.items()) if o.spec.selector is not None else frozenset()
    workloads = list(islice((have for have in label_sets(db, namespace) if labels <= have), _MAX_WORKLOADS + 1))
    if (
        not 0 < len(workloads) <= _MAX_WORKLOADS
        or namespace == root_namespace(db)
        or SERVICE_ENTRY.keys(db, "selecting", namespace)
        or _has_ingress(db, namespace)
        or (db.settings.ambient.enabled and captures(db, o))
    ):
        return []
    ports: list[ServicePort] = []
    for have in workloads:
        services = selecting_services(db, namespace, have)
        of_gateways = {one.hostname for one in services} & _hosts_of_gateways(db)
        if not services or of_gateways or _is_gateway(db, namespace, have):
            return []
        ports += ports_of(services)
    return ports


def _has_ingress(db: Mesh, namespace: str) -> bool:
    rows = (SIDECAR.get(db, key) for key in SIDECAR.keys(db, "namespace", namespace))
    return any(row is not None and row.spec.ingress for row in rows)


def _is_gateway(db: Mesh, namespace: str, labels: Labels) -> bool:
    """Return whether workloads with the labels are routers."""
    if any(name in _LABELS_OF_GATEWAYS for name, _ in labels) or labels in router_labels(db, namespace):
        return True
    return any(selector <= labels for selector in _gateway_selectors(db))


@derived
def _hosts_of_gateways(db: Mesh) -> frozenset[str]:
    """Return the hosts of the Services whose workloads implement Gateways."""
    rows = (GATEWAY.get(db, key) for key in GATEWAY.all_keys(db))
    return frozenset(host for row in rows if row is not None and row.origin is not None for host in row.origin.services)


@derived
def _gateway_selectors(db: Mesh) -> frozenset[Labels]:
    rows = (GATEWAY.get(db, key) for key in GATEWAY.all_keys(db))
    return frozenset(frozenset(row.spec.selector.items()) for row in rows if row is not None and row.spec.selector)
