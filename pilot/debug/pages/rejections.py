"""Explanations of rejections (NACKs) in which Envoy names a cluster that it does not know.

All pages and commands that show the error of a rejection use this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from pilot.config.kinds.istio import DESTINATION_RULE, VIRTUAL_SERVICE
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef, Problem, plain_problem
from pilot.debug.hidden_services import hiding_sidecar
from pilot.debug.object_delivery import ERROR_LENGTH, find_delivery, name_causes
from pilot.debug.pages.config_dump import resources_of
from pilot.debug.slices import collect_present
from pilot.debug.sources import ConnectedProxy, Sources
from pilot.debug.terms import rejects, since
from pilot.envoy.names import ClusterName, outbound_cluster, parse_cluster
from pilot.lib.text import cut
from pilot.lib.xds_types import BY_SHORT_NAME, short_name
from pilot.mesh.analysis.destination import services_named
from pilot.mesh.analysis.nack import likely_causes
from pilot.mesh.analysis.virtual_service import destinations
from pilot.mesh.model.nack import NackKey
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import inbound_merged_rule_key
from pilot.mesh.traffic.virtual_services import qualified

MAX_EXPLAINED = 5
"""Maximum number of problems that are explained."""
_LISTED = 10
_SEARCHED = 4_000
_CLUSTER = re.compile(r"unknown (?:\w{1,20} )?cluster '([^'\n]{1,300})'")


async def explain_problems(sources: Sources, problems: Iterable[Problem]) -> list[Problem]:
    """Return problems with explanations of the first rejections because of clusters that Envoy does not know."""
    explained, left = [], MAX_EXPLAINED
    for problem in problems:
        is_rejection = left and problem.code == "refused"
        why = await explain_rejection(sources, problem.object, problem.message) if is_rejection else ""
        left -= bool(why)
        explained.append(msgspec.structs.replace(problem, message=f"{problem.message}; {why}") if why else problem)
    return explained


async def explain_rejection(sources: Sources, ref: ObjectRef, error: str) -> str:
    """Return why a proxy that rejected an object does not know the cluster in its error, or ""."""
    keys = sources.db.nacks.keys("object", ref) if unknown_cluster(error) else ()
    connections = {c.proxy_key: c for c in sources.fleet.connections()}
    connection = next((connections[key.proxy] for key in sorted(keys) if key.proxy in connections), None)
    return await explain_error(sources, connection, error, ref) if connection is not None else ""


def show_problem(sources: Sources, problem: Problem) -> dict[str, Any]:
    """Return a problem as a JSON object, with the Unix time of the last change of its object, or 0.0 if unknown."""
    return plain_problem(problem) | {"changed": last_change(sources, problem.object)}


def last_change(sources: Sources, ref: ObjectRef) -> float:
    """Return the Unix time of the last change of an object, or 0.0 if it is not known."""
    version = sources.find_object(ref)
    event = version.event if version is not None else 0
    return next((change.time for change in sources.changes if change.number == event), 0.0) if event else 0.0


class ProxyRejection(NamedTuple):
    """The rejection of a type by a proxy.

    `action` continues the name of the proxy: what it rejects, and since when. `causes` are the objects that are known
    to cause it, the most likely first. `error` is Envoy's message, with an explanation.
    """

    action: str
    causes: tuple[ObjectRef, ...]
    error: str

    @property
    def text(self) -> str:
        """Return everything about the rejection as a phrase that continues the name of the proxy."""
        because = f" because of {name_causes(self.causes)}" if self.causes else ""
        return f"{self.action}{because}: {self.error}"

    @property
    def text_of_object(self) -> str:
        """Return the phrase for a place that already names the first cause."""
        return self.text if self.causes[1:] else f"{self.action}: {self.error}"


async def explain_rejections(
    sources: Sources, connection: ConnectedProxy, is_brief: bool = False
) -> list[ProxyRejection]:
    """Return the errors of the types that a proxy rejects, with the objects that they were built from, and why.

    If `is_brief`, leave out why a cluster is not known.
    """
    rejections = []
    for url, watch in connection.subscriptions.items():
        if not watch.last_error:
            continue
        nack = sources.db.nacks.peek(NackKey(connection.proxy_key, url))
        causes = likely_causes(nack.objects) if nack is not None else []
        cause, error = causes[0] if causes else None, "" if is_brief else watch.last_error
        why = await explain_error(sources, connection, error, cause)
        text = "; ".join(filter(None, (cut(watch.last_error, ERROR_LENGTH), why)))
        action = f"{rejects(1, [short_name(url)])}{since(watch.rejected_since)}"
        rejections.append(ProxyRejection(action, tuple(causes), text))
    return rejections


async def explain_error(sources: Sources, connection: ConnectedProxy, error: str, ref: ObjectRef | None) -> str:
    """Return why a proxy does not know the cluster in an error, and how many others accept the object. For other
    errors, return only the number, or "" if it is not known."""
    name = unknown_cluster(error)
    why = await explain_cluster(sources, connection, name) if name else ""
    return "; ".join(filter(None, (why, await _others(sources, ref) if ref is not None else "")))


def unknown_cluster(error: str) -> str:
    """Return the name of the cluster that Envoy does not know according to its error, or ""."""
    match = _CLUSTER.search(error[:_SEARCHED])
    return match[1] if match is not None else ""


async def explain_cluster(sources: Sources, connection: ConnectedProxy, name: str) -> str:
    """Return why a cluster is not part of the configuration of a proxy, or that it is."""
    proxy = connection.proxy.id
    clusters = BY_SHORT_NAME["cds"]
    if any(resource.name == name for resource in resources_of(sources, connection, clusters)):
        watch = connection.subscriptions[clusters]
        also = ", but the proxy rejects its clusters too" if watch.last_error else ""
        return f"the cluster is now part of the configuration sent to {proxy}{also}"
    reason = await explain_missing_cluster(sources, connection, name)
    return f"the cluster is not part of the configuration sent to {proxy}{f': {reason}' if reason else ''}"


async def explain_missing_cluster(sources: Sources, connection: ConnectedProxy, name: str) -> str:
    """Return why a proxy does not have a cluster, or "" if it is not known. `name` may be the name of a service."""
    cluster = parse_cluster(name)
    if cluster is None:
        return _explain_service(sources.db, connection, name)
    return ", and ".join(await _reasons(sources, connection, cluster)) if cluster is not None and cluster.host else ""


def _explain_service(db: Mesh, connection: ConnectedProxy, text: str) -> str:
    """Return the cluster of the service that is named NAME.NAMESPACE or by its host, or what hides it from a proxy."""
    hosts = (text, f"{text}.svc.{db.settings.registry.domain}")
    service = next((service for host in hosts for service in services_named(db, host)), None)
    if service is None or not service.ports:
        return ""
    host, sidecar = service.hostname, hiding_sidecar(db, connection.proxy_key, service.hostname)
    if sidecar is not None:
        return f"Sidecar {sidecar.namespace}/{sidecar.name} hides {host} from the proxy"
    return f"the cluster of this service is {outbound_cluster(service.ports[0].number, '', host)!r}"


async def _reasons(sources: Sources, connection: ConnectedProxy, cluster: ClusterName) -> list[str]:
    """Return why there is no such cluster for a proxy, and the VirtualServices that name it."""
    db, host = sources.db, cluster.host
    services = services_named(db, host)
    if not services:
        return [f"no service has the host {host}", await _users(db, cluster)]
    sidecar = hiding_sidecar(db, connection.proxy_key, host)
    if sidecar is not None:
        return [f"Sidecar {sidecar.namespace}/{sidecar.name} hides {host} from the proxy"]
    if not any(service.port(cluster.port) for service in services):
        ports = sorted({port.number for service in services for port in service.ports})[:_LISTED]
        return [f"{host} has the ports {', '.join(map(str, ports))}", await _users(db, cluster)]
    if not cluster.subset:
        return []
    keys = {key: None for s in services for key in inbound_merged_rule_key(db, connection.proxy.namespace, s.ref)}
    rules = [text for key in list(keys)[:_LISTED] if (text := _subsets(db, key))]
    return [*(rules or [f"no DestinationRule defines subsets of {host}"]), await _users(db, cluster)]


def _subsets(db: Mesh, key: ObjectKey) -> str:
    row = DESTINATION_RULE.get(db, key)
    names = [subset.name for subset in row.spec.subsets[:_LISTED]] if row is not None else []
    plural = "subset" if len(names) == 1 else "subsets"
    return f"DestinationRule {key.namespace}/{key.name} defines the {plural} {', '.join(names)}" if names else ""


async def _users(db: Mesh, cluster: ClusterName) -> str:
    """Return a phrase that names the VirtualServices with a route to a cluster, or that says that there is none."""
    about = f"the subset {cluster.subset}" if cluster.subset else "this host"
    keys = await collect_present(
        key if (row := qualified(db, key)) is not None and _has_route(row.spec, cluster) else None
        for key in VIRTUAL_SERVICE.all_keys(db)
    )
    names = ", ".join(f"{key.namespace}/{key.name}" for key in keys[:_LISTED])
    return f"VirtualService {names} names {about}" if names else f"no VirtualService names {about} now"


def _has_route(spec: VirtualService, cluster: ClusterName) -> bool:
    every = (to for _, to in destinations(spec) if to is not None)
    return any((to.host, to.subset) == (cluster.host, cluster.subset) for to in every)


async def _others(sources: Sources, ref: ObjectRef) -> str:
    """Return the number of proxies that have accepted the last change of an object as a phrase, or ""."""
    version = sources.find_object(ref)
    if version is None or not version.exists:
        return ""
    delivery = await find_delivery(sources, ref, version, sources.fleet.connections())
    number = delivery.acknowledged
    others = f"{number} other {'proxy' if number == 1 else 'proxies'}" if number else "no other proxy"
    return f"{others} accepted {_name(ref)}"


def _name(ref: ObjectRef) -> str:
    return f"{ref.kind.name} {ref.namespace}/{ref.name}"
