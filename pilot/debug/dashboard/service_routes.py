"""The routes that concern a service, with the number of ready endpoints of each destination."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.networking.virtual_service import (
    Destination,
    HTTPRoute,
    RouteDestination,
    StringMatch,
    VirtualService,
)
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import ObjectRef, plain_ref
from pilot.debug.dashboard.mesh import USABLE, ServiceFacts, written_by
from pilot.debug.rule_text import MAX_ITEMS, MAX_TEXT
from pilot.debug.slices import collect_all
from pilot.lib.text import cut
from pilot.mesh.analysis.opaque_port import opaque_ports, ports_of
from pilot.mesh.model.endpoint import Endpoint
from pilot.mesh.model.service import Service, ServiceRef
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import inbound_merged_rule_key, merged_rule
from pilot.mesh.traffic.virtual_service_names import MESH
from pilot.mesh.traffic.virtual_services import virtual_service

MAX_ROUTES, MAX_RULES = 20, 20
"""Maximum numbers of VirtualServices, and of rules of an object."""
MAX_COUNTED = 2_000
"""Maximum number of endpoints that are counted for a subset."""
Plain = dict[str, Any]
Place = tuple[str, str, int]
"""The host, the subset and the port of a destination, or 0 without a port."""


class ServiceReason(NamedTuple):
    """A reason for which requests to a service may fail. `severity` is "error", "warning" or "info".

    `path` is that of the field of the object, or "" if it is not known.
    `is_own` says whether it is the state of one of the service's own proxies.
    """

    severity: str
    text: str
    object: ObjectRef | None = None
    path: str = ""
    is_own: bool = False

    def plain(self) -> Plain:
        """Return the reason as a JSON object."""
        return {
            "severity": self.severity,
            "text": self.text,
            "object": plain_ref(self.object) if self.object is not None else None,
            "own": self.is_own,
        }


class Capacity(NamedTuple):
    """The endpoints of a destination. `fault` is the reason for which requests to it fail, or "" if there is none."""

    fault: str
    namespace: str = ""
    ready: int = 0
    total: int = 0


class ServiceRoute(NamedTuple):
    """A VirtualService for the page, and the reasons for which its destinations may fail."""

    shown: Plain
    reasons: list[ServiceReason]


async def list_routes(
    db: Mesh,
    target: Service,
    keys: Sequence[ObjectKey],
    applied: Collection[ObjectKey],
    hosts: Mapping[str, ServiceFacts],
) -> list[ServiceRoute]:
    """Return at most `MAX_ROUTES` VirtualServices. Those in `applied` are bound to the host of the service `target`."""
    rows = [row for key in keys[:MAX_ROUTES] if (row := virtual_service(db, key)) is not None]
    places = dict.fromkeys(place for row in rows for place in _places(row.spec))
    capacities = dict(await collect_all((place, _capacity(db, *place, hosts)) for place in places))
    is_opaque = bool(opaque_ports(ports_of((target,))))
    return await collect_all(_route(row, row.key in applied, is_opaque, capacities) for row in rows)


def _places(spec: VirtualService) -> Iterator[Place]:
    """Yield the destinations that are shown."""
    rules: tuple[Any, ...] = (*spec.http[:MAX_RULES], *spec.tls[:MAX_RULES], *spec.tcp[:MAX_RULES])
    for rule in rules:
        for d in rule.route[:MAX_ITEMS]:
            if d.destination is not None:
                yield _place(d.destination)


def _place(to: Destination) -> Place:
    return to.host, to.subset, to.port.number if to.port is not None else 0


def _capacity(db: Mesh, host: str, subset_name: str, port: int, hosts: Mapping[str, ServiceFacts]) -> Capacity:
    facts = hosts.get(host)
    if facts is None:
        return Capacity("the host does not exist")
    ref = ServiceRef(facts.host, facts.namespace)
    ready, total = facts.ready, facts.total
    if port and port not in facts.ports:
        return Capacity(f"it has no port {port}", facts.namespace)
    if subset_name:
        rule = merged_rule(db, inbound_merged_rule_key(db, facts.namespace, ref))
        subset = next((s for s in rule.spec.subsets if s.name == subset_name), None) if rule is not None else None
        if subset is None:
            return Capacity(f"no DestinationRule has the subset {subset_name}", facts.namespace)
        ready, total = count_subset(first_port_endpoints(db, ref), subset.labels)
    fault = "" if total < 0 or ready else "no endpoint is ready" if total else "it has no endpoints"
    return Capacity(fault, facts.namespace, ready, total)


def first_port_endpoints(db: Mesh, ref: ServiceRef) -> tuple[Endpoint, ...]:
    """Return the endpoints of a service's first port."""
    target = service(db, ref)
    return endpoints(db, ref, target.ports[0].number) if target is not None and target.ports else ()


def count_subset(every: Sequence[Endpoint], labels: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of ready endpoints with these labels, and the number of all of them, among `MAX_COUNTED`."""
    pairs = frozenset(labels.items())
    chosen = [e.health in USABLE for e in every[:MAX_COUNTED] if pairs <= e.labels]
    return sum(chosen), len(chosen)


def _route(
    row: Object[VirtualService], applies: bool, is_opaque: bool, capacities: Mapping[Place, Capacity]
) -> ServiceRoute:
    """Return a VirtualService. With `is_opaque`, its http routes have an effect only at gateways."""
    spec, by = row.spec, written_by(row)
    is_ignored = applies and is_opaque and all(gateway == MESH for gateway in spec.gateways)
    reasons: list[ServiceReason] = []
    rules: list[Plain] = []
    for index, http in enumerate(spec.http[:MAX_RULES]):
        path = f"spec.http[{index}]"
        to = _destinations(http.route, capacities)
        if applies and not is_ignored:
            reasons += _rule_reasons(by, path, to, http)
        match = [match_text(m) for m in http.match[:MAX_ITEMS]]
        action = "none: the service has no HTTP port" if is_ignored else action_text(http)
        rules.append({"path": path, "match": match, "to": to, "action": action})
    for index, tls in enumerate(spec.tls[:MAX_RULES]):
        names = [", ".join(m.sni_hosts[:MAX_ITEMS]) for m in tls.match[:MAX_ITEMS]]
        rules.append(
            {"path": f"spec.tls[{index}]", "match": names, "to": _destinations(tls.route, capacities), "action": ""}
        )
    for index, tcp in enumerate(spec.tcp[:MAX_RULES]):
        ports = [f"port {m.port}" if m.port else "any port" for m in tcp.match[:MAX_ITEMS]]
        rules.append(
            {"path": f"spec.tcp[{index}]", "match": ports, "to": _destinations(tcp.route, capacities), "action": ""}
        )
    shown = {
        "object": plain_ref(by),
        "applies": applies,
        "hosts": spec.hosts[:MAX_ITEMS],
        "gateways": spec.gateways[:MAX_ITEMS],
        "rules": rules,
    }
    return ServiceRoute(shown, reasons)


def _destinations(route: Iterable[Any], capacities: Mapping[Place, Capacity]) -> list[Plain]:
    shown: list[Plain] = []
    weighted: RouteDestination
    for weighted in islice(route, MAX_ITEMS):
        if (d := weighted.destination) is not None:
            capacity = capacities[_place(d)]
            port = d.port.number if d.port is not None else 0
            place = {"host": d.host, "port": port, "subset": d.subset, "weight": weighted.weight}
            shown.append(place | capacity._asdict())
    return shown


def _rule_reasons(by: ObjectRef, path: str, to: list[Plain], http: HTTPRoute) -> Iterator[ServiceReason]:
    for index, d in enumerate(to):
        if d["fault"] and (d["weight"] or len(to) == 1):
            name = d["host"] + (f", subset {d['subset']}" if d["subset"] else "")
            share = f"{d['weight']} % of its requests" if d["weight"] and len(to) > 1 else "its requests"
            status = 503 if d["namespace"] or by.kind == VIRTUAL_SERVICE.id else 500
            text = f"{path} sends {share} to {name}: {d['fault']}, so they get {status}."
            yield ServiceReason("error", text, by, f"{path}.route[{index}]")
    if faults := fault_texts(http):
        yield ServiceReason("warning", f"{path} {' and '.join(faults)}.", by)


def match_text(m: Any) -> str:
    """Return a match condition as text."""
    parts = [m.method and f"{string_text(m.method)}", m.uri and f"path {string_text(m.uri)}"]
    parts += [m.authority and f"host {string_text(m.authority)}", m.port and f"port {m.port}"]
    parts += [f"header {name} {string_text(value)}" for name, value in islice(m.headers.items(), MAX_ITEMS)]
    parts += [f"without header {name} {string_text(value)}" for name, value in islice(m.without_headers.items(), 5)]
    parts += [f"query {name} {string_text(value)}" for name, value in islice(m.query_params.items(), MAX_ITEMS)]
    parts += [f"from {name}={value}" for name, value in islice(m.source_labels.items(), MAX_ITEMS)]
    parts += [m.source_namespace and f"from namespace {m.source_namespace}"]
    parts += [m.gateways and f"at gateway {', '.join(m.gateways[:MAX_ITEMS])}"]
    return cut(" and ".join(part for part in parts if part), MAX_TEXT) or "every request"


def string_text(match: StringMatch) -> str:
    """Return a condition on a string as text."""
    if match.prefix is not None:
        return f"{match.prefix}*"
    return f"~ {match.regex}" if match.regex is not None else match.exact or "present"


def fault_texts(http: HTTPRoute) -> list[str]:
    """Return the faults that a route injects as text."""
    parts = []
    if http.fault is not None and http.fault.abort is not None:
        abort = http.fault.abort
        share = f"{abort.percentage.value:g} % of the requests" if abort.percentage is not None else "every request"
        parts.append(f"aborts {share} with {abort.http_status or abort.grpc_status or 'an error'}")
    if http.fault is not None and http.fault.delay is not None:
        parts.append(f"delays requests by {http.fault.delay.fixed_delay}")
    return parts


def action_text(http: HTTPRoute) -> str:
    """Return what a route does besides choosing a destination."""
    parts = fault_texts(http)
    if http.redirect is not None:
        parts.append(f"redirects to {http.redirect.authority}{http.redirect.uri}")
    if http.direct_response is not None:
        parts.append(f"answers {http.direct_response.status}")
    if http.delegate is not None:
        parts.append(f"delegates to {http.delegate.namespace}/{http.delegate.name}")
    if http.rewrite is not None and (http.rewrite.uri or http.rewrite.authority):
        parts.append(f"rewrites to {http.rewrite.authority}{http.rewrite.uri}")
    if http.timeout is not None:
        parts.append(f"timeout {http.timeout}")
    if http.retries is not None:
        parts.append(f"{http.retries.attempts} retries")
    if http.mirror is not None or http.mirrors:
        first = http.mirror or http.mirrors[0].destination
        parts.append(f"mirrors to {first.host if first is not None else ''}")
    return cut("; ".join(parts), MAX_TEXT)
