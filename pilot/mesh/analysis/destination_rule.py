"""Checks that the hosts, ports, subsets and credentials of DestinationRules exist, and that no older rule has the same
settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.networking.destination_rule import ClientTLSSettings, DestinationRule, TrafficPolicy
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import Problem, Problems, below, warning
from pilot.derive import derived
from pilot.lib.hosts import full_name, is_wildcard, subset_of
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.credential import check_credential
from pilot.mesh.analysis.destination import LISTED, ports_hint, services_named, suggest_service
from pilot.mesh.analysis.export_to import check_export_to
from pilot.mesh.analysis.selector import check_selector, has_workloads
from pilot.mesh.analysis.virtual_service import receives_http
from pilot.mesh.model.credential_key import CA_SUFFIX
from pilot.mesh.model.service import Registry, Resolution, Service, ServiceRef
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.pod_templates import template_labels
from pilot.mesh.registry.pods import pod_labels
from pilot.mesh.registry.services import refs_in_namespace, service_refs
from pilot.mesh.security.mtls import namespace_mtls
from pilot.mesh.tables.credentials import secret_namespaces
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import MAX_SUBSET_CLUSTERS, is_merged, older_sources
from pilot.mesh.traffic.rule_pools import MAX_MERGED

_WITH_ENDPOINTS = (Resolution.CLIENT_SIDE_LB, Resolution.DNS_LB)


@derived
def _keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return DESTINATION_RULE.all_keys(db)


@derived
def destination_rule_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problems between a DestinationRule and other objects."""
    rule = DESTINATION_RULE.get(db, key)
    return attribute(rule, below("spec", _check(db, rule))) if rule is not None else ()


DESTINATION_RULES = Check("DestinationRule", _keys, destination_rule_problems)


def _check(db: Mesh, o: Object[DestinationRule]) -> Problems:
    spec, host = o.spec, full_name(o.spec.host, o.namespace, db.settings.registry.domain)
    if is_wildcard(host):
        if not any(subset_of(ref.hostname, host) for ref in _candidates(db, host)):
            yield warning("host-not-found", "host", f"no service matches {host}")
    elif services := services_named(db, host):
        yield from _check_policies(services, spec)
        yield from _check_subset_count(services, spec)
        yield from _check_subsets(db, services, spec)
        yield from _check_mutual_tls(db, services, spec)
        yield from _check_tls_twice(db, services, spec)
    else:
        yield warning("host-not-found", "host", f"service {host} not found{suggest_service(db, host)}")
    yield from _check_older(db, o, host)
    if not is_merged(db, o.key, host):
        yield warning("too-many", "host", f"{host} has more than {MAX_MERGED} rules; the newest have no effect")
    if spec.workload_selector is not None:
        yield from below("workloadSelector", check_selector(db, o.namespace, spec.workload_selector.match_labels))
    yield from _check_credentials(db, o)
    yield from below("exportTo", check_export_to(db, spec.export_to))


def _candidates(db: Mesh, host: str) -> Iterable[ServiceRef]:
    """Return the services that a wildcard host may match.

    If the suffix of the host names a namespace, these are the services in that namespace. Otherwise, they are all
    services.
    """
    suffix = f".svc.{db.settings.registry.domain}"
    if host.endswith(suffix):
        namespace = host.removesuffix(suffix).rpartition(".")[2]
        if namespace and "*" not in namespace:
            return refs_in_namespace(db, namespace)
    return service_refs(db)


def _policies(spec: DestinationRule) -> Iterable[tuple[str, TrafficPolicy]]:
    if spec.traffic_policy is not None:
        yield "trafficPolicy", spec.traffic_policy
    for index, subset in enumerate(spec.subsets):
        if subset.traffic_policy is not None:
            yield f"subsets[{index}].trafficPolicy", subset.traffic_policy


def _check_policies(services: tuple[Service, ...], spec: DestinationRule) -> Problems:
    for path, policy in _policies(spec):
        for index, level in enumerate(policy.port_level_settings):
            if level.port is not None and not any(s.port(level.port.number) for s in services):
                yield warning(
                    "port-not-found",
                    f"{path}.portLevelSettings[{index}].port.number",
                    f"{spec.host} has no port {level.port.number}, so its settings have no effect"
                    f"{ports_hint(services, level.port.number)}",
                )


def _check_subset_count(services: tuple[Service, ...], spec: DestinationRule) -> Problems:
    """Yield a problem if there are too many subsets for the number of ports."""
    ports = max(len(service.ports) for service in services)
    if ports * len(spec.subsets) > MAX_SUBSET_CLUSTERS:
        usable = MAX_SUBSET_CLUSTERS // ports
        text = f"{spec.host} has {ports} ports, so only the first {usable} subsets have an effect"
        yield warning("too-many-subsets", "subsets", text)


def _check_subsets(db: Mesh, services: tuple[Service, ...], spec: DestinationRule) -> Problems:
    """Yield a problem for each subset without endpoints. Skip the check if the endpoints of a service are unknown.

    Pods that an EndpointSlice may list later, and workloads that will run, because there are templates of their Pods,
    count as endpoints.
    """
    if any(s.resolution not in _WITH_ENDPOINTS for s in services):
        return
    labels = {e.labels for s in services for port in s.ports for e in endpoints(db, s.ref, port.number)}
    if all(_has_labels(subset.labels, labels) for subset in spec.subsets):
        return
    for one in services:
        if one.selector:
            own = (*pod_labels(db, one.namespace).values(), *template_labels(db, one.namespace))
            labels |= {have for have in own if have.issuperset(one.selector)}
    if not labels and any(s.selector for s in services) and not has_workloads(db):
        return
    for index, subset in enumerate(spec.subsets):
        if not _has_labels(subset.labels, labels):
            text = f"no endpoint of {spec.host} has {_label_values(subset.labels, labels)}"
            yield warning("subset-without-endpoints", f"subsets[{index}].labels", text)


def _has_labels(labels: Mapping[str, str], of_endpoints: Iterable[frozenset[tuple[str, str]]]) -> bool:
    """Return whether an endpoint has all the labels of a subset."""
    return not labels or any(labels.items() <= have for have in of_endpoints)


def _label_values(labels: Mapping[str, str], of_endpoints: Iterable[frozenset[tuple[str, str]]]) -> str:
    """Return the labels of a subset that no endpoint has, or else all of them, and the values that occur instead."""
    own = [dict(row) for row in of_endpoints]
    lacking = {k: v for k, v in labels.items() if not any(row.get(k) == v for row in own)} or dict(labels)
    shown = ", ".join(f"{name}: {value}" for name, value in list(lacking.items())[:LISTED])
    name = next(iter(lacking))
    values = sorted({row[name] for row in own if name in row})
    return f"the labels {shown}" + (f"; values of {name} are {', '.join(values[:LISTED])}" if values else "")


def _check_mutual_tls(db: Mesh, services: tuple[Service, ...], spec: DestinationRule) -> Problems:
    """Yield a problem for each service whose namespace has a mutual TLS mode that contradicts the clients' mode."""
    if spec.traffic_policy is None or spec.traffic_policy.tls is None:
        return
    mode = spec.traffic_policy.tls.mode
    for one in services:
        required = namespace_mtls(db, one.namespace) if one.registry is Registry.KUBERNETES else "UNKNOWN"
        if (required == "STRICT" and mode != "ISTIO_MUTUAL") or (required == "DISABLE" and mode == "ISTIO_MUTUAL"):
            message = f"mutual TLS is {required} in namespace {one.namespace}, but clients use {mode}"
            yield warning("mtls-conflict", "trafficPolicy.tls.mode", message)


def _check_tls_twice(db: Mesh, services: tuple[Service, ...], spec: DestinationRule) -> Problems:
    """Yield a problem for each port of a ServiceEntry on which clients and the rule both use TLS.

    A port with a TLS protocol gets plain HTTP if a VirtualService sends requests to it, as at an egress gateway.
    """
    policy = spec.traffic_policy
    if policy is None:
        return
    levels = {level.port.number: index for index, level in enumerate(policy.port_level_settings) if level.port}
    for one in services:
        for port in one.ports if one.registry is Registry.EXTERNAL else ():
            index = levels.get(port.number)
            tls = policy.tls if index is None else policy.port_level_settings[index].tls
            if (
                tls is not None
                and tls.mode in ("SIMPLE", "MUTUAL")
                and port.protocol.is_tls
                and not receives_http(db, one.hostname, port.number)
            ):
                field = "tls" if index is None else f"portLevelSettings[{index}].tls"
                text = (
                    f"port {port.number} of ServiceEntry {one.source.namespace}/{one.source.name} has protocol "
                    f"{port.protocol}, so clients use TLS already, and this rule adds it a second time: requests fail; "
                    "remove tls here, or declare protocol: HTTP there and let clients send plain HTTP"
                )
                yield warning("tls-twice", f"trafficPolicy.{field}.mode", text)


def _check_older(db: Mesh, o: Object[DestinationRule], host: str) -> Problems:
    """Yield a problem if an older rule for the same host also sets a traffic policy, and for each subset that it also
    defines.

    The rules are merged, and the settings of the older rule take precedence.
    """
    for key in older_sources(db, o.key, host):
        older = DESTINATION_RULE.get(db, key)
        if older is None:
            continue
        name, older_subsets = f"{key.namespace}/{key.name}", {s.name for s in older.spec.subsets}
        if o.spec.traffic_policy is not None and older.spec.traffic_policy is not None:
            yield warning("policy-shadowed", "trafficPolicy", f"the older DestinationRule {name} takes precedence")
        for index, subset in enumerate(o.spec.subsets):
            if subset.name in older_subsets:
                yield warning(
                    "subset-shadowed",
                    f"subsets[{index}].name",
                    f"the older DestinationRule {name} has a subset {subset.name}",
                )


def _check_credentials(db: Mesh, o: Object[DestinationRule]) -> Problems:
    for path, policy in _policies(o.spec):
        yield from below(f"{path}.tls", _check_credential(db, o.namespace, policy.tls))
        for index, level in enumerate(policy.port_level_settings):
            yield from below(f"{path}.portLevelSettings[{index}].tls", _check_credential(db, o.namespace, level.tls))


def _check_credential(db: Mesh, namespace: str, tls: ClientTLSSettings | None) -> Problems:
    """Yield the problems of a credential, unless it is valid in at least one namespace.

    Clients read the Secret in their own namespace.
    """
    if tls is None or not tls.credential_name:
        return
    name = tls.credential_name
    namespaces = (namespace,) if "://" in name else secret_namespaces(db, name, name + CA_SUFFIX)
    if not namespaces:
        yield warning("credential-not-found", "credentialName", f"no namespace has a Secret {name}")
        return
    verifies = not tls.insecure_skip_verify
    for text, roots in ((name, False),) * (tls.mode == "MUTUAL") + ((name + CA_SUFFIX, True),) * verifies:
        problems = [tuple(check_credential(db, "credentialName", text, (one,), roots)) for one in namespaces]
        if all(problems):
            yield from problems[0]
