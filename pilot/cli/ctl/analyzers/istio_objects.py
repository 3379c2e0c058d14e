"""Checks of Istio's kinds that only advise, so that a control plane does not report them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObject, AnalyzedObjects, Plain, mapping, mappings, texts
from pilot.cli.ctl.analyzers.analyzer import (
    DESTINATION_RULE,
    ENVOY_FILTER,
    GATEWAY,
    INJECTOR_CONFIG,
    MUTATING_WEBHOOKS,
    SERVICE_ENTRY,
    VIRTUAL_SERVICE,
    Analyzer,
    Reports,
)
from pilot.config.problem import Problems, warning
from pilot.mesh.gateway_api.generated_names import is_listener_gateway

_VERIFYING = ("SIMPLE", "MUTUAL")
_RELATIVE = frozenset(("INSERT_BEFORE", "INSERT_AFTER", "REPLACE", "REMOVE"))
_ALLOCATIONS = ("ISTIO_META_DNS_AUTO_ALLOCATE", "PILOT_ENABLE_IP_AUTOALLOCATE")


def _check_roots(objects: AnalyzedObjects) -> Reports:
    for one in objects.of(DESTINATION_RULE.id):
        has_selector = bool(one.value("spec", "workloadSelector"))
        policy = one.part("spec", "trafficPolicy")
        for problem in _check_root(policy, "spec.trafficPolicy.tls", "no-ca-certificates", has_selector):
            yield one, problem
        for index, level in enumerate(mappings(policy.get("portLevelSettings"))):
            path = f"spec.trafficPolicy.portLevelSettings[{index}].tls"
            for problem in _check_root(level, path, "no-ca-certificates-for-port", has_selector):
                yield one, problem


def _check_root(policy: Plain, path: str, code: str, has_selector: bool) -> Problems:
    tls = mapping(policy.get("tls"))
    if tls.get("mode") not in _VERIFYING or tls.get("caCertificates"):
        return
    if tls.get("insecureSkipVerify") is True:
        yield warning(code, path, "the certificate of the server is not verified")
    elif not (has_selector and tls.get("credentialName")):
        text = "caCertificates is not set, so the operating system's certificate authorities verify the server"
        yield warning(code, path, text)


def _check_patches(objects: AnalyzedObjects) -> Reports:
    """Yield a problem for each patch whose position depends on other EnvoyFilters, which have no defined order."""
    versioned: set[str] = set()
    for one in objects.of(ENVOY_FILTER.id):
        for index, item in enumerate(one.items("spec", "configPatches")):
            match, name = mapping(item.get("match")), _patched_name(item)
            if mapping(item.get("patch")).get("operation") in _RELATIVE and not one.value("spec", "priority"):
                depends = "its effect depends on the order of EnvoyFilters; set a priority, or use INSERT_FIRST or ADD"
                code = "relative-patch"
                if name in versioned:
                    code = "relative-patch-by-version"
                    depends = f"another EnvoyFilter patches {name} only for some proxy versions; {depends}"
                yield one, warning(code, f"spec.configPatches[{index}].patch.operation", depends)
            if mapping(match.get("proxy")).get("proxyVersion") and name:
                versioned.add(name)


def _patched_name(item: Plain) -> str:
    chain = mapping(mapping(mapping(item.get("match")).get("listener")).get("filterChain"))
    value = mapping(mapping(item.get("patch")).get("value"))
    return str(value.get("name") or mapping(chain.get("filter")).get("name") or "")


def _check_certificates(objects: AnalyzedObjects) -> Reports:
    users: dict[tuple[str, ...], list[AnalyzedObject]] = {}
    for one in objects.of(GATEWAY.id):
        for certificate in dict.fromkeys(_certificates(one)):
            users.setdefault(certificate, []).append(one)
    for certificate, gateways in users.items():
        for one in gateways:
            selector = texts(one.value("spec", "selector"))
            others = [
                f"{other.namespace}/{other.name}"
                for other in gateways
                if other is not one and selector.items() <= texts(other.value("spec", "selector")).items()
            ]
            if others:
                text = (
                    f"{', '.join(others)} also uses the certificate {certificate[0]}; HTTP/2 connections that clients "
                    "reuse for the hosts of both may fail with 404"
                )
                yield one, warning("certificate-shared", "spec.servers", text)


def _certificates(one: AnalyzedObject) -> Iterator[tuple[str, ...]]:
    for server in one.items("spec", "servers"):
        tls = mapping(server.get("tls"))
        if tls.get("credentialName"):
            yield (str(tls["credentialName"]),)
        elif tls.get("serverCertificate") and tls.get("privateKey"):
            yield str(tls["serverCertificate"]), str(tls["privateKey"])


def _check_addresses(objects: AnalyzedObjects) -> Reports:
    metadata = objects.mesh.default_config.proxy_metadata
    is_allocated = metadata.get("ISTIO_META_DNS_CAPTURE") == "true" and any(
        metadata.get(name) == "true" for name in _ALLOCATIONS
    )
    for one in () if is_allocated else objects.of(SERVICE_ENTRY.id):
        if one.value("spec", "addresses") or one.value("status", "addresses"):
            continue
        for index, port in enumerate(one.items("spec", "ports")):
            if str(port.get("protocol") or "TCP").upper() == "TCP":
                text = "without addresses, proxies that do not capture DNS match all TCP connections to this port"
                yield one, warning("addresses-needed", f"spec.ports[{index}].protocol", text)


def _check_subsets(objects: AnalyzedObjects) -> Reports:
    """Yield a problem for each route of gateways to a service whose own VirtualService routes it to subsets."""
    routed: dict[str, list[str]] = {}
    rows = list(objects.of(VIRTUAL_SERVICE.id))
    for one in rows:
        for _, destination in _destinations(one):
            host = str(destination.get("host"))
            if destination.get("subset") and host in _texts(one.value("spec", "hosts")):
                routed.setdefault(host, []).append(f"{one.namespace}/{one.name}")
    for one in rows:
        if one.value("spec", "gateways"):
            for path, destination in _destinations(one):
                names = routed.get(str(destination.get("host")), ())
                if names and not destination.get("subset"):
                    text = f"the subsets that VirtualService {names[0]} routes to have no effect on this route"
                    yield one, warning("subset-without-effect", path, text)


def _check_gateways(objects: AnalyzedObjects) -> Reports:
    for one in objects.of(VIRTUAL_SERVICE.id):
        for index, name in enumerate(_texts(one.value("spec", "gateways"))):
            if is_listener_gateway(name):
                text = "the Gateway is generated from a Gateway of the Gateway API; use an HTTPRoute instead"
                yield one, warning("internal-gateway", f"spec.gateways[{index}]", text)


def _destinations(one: AnalyzedObject) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for r, rule in enumerate(one.items("spec", "http")):
        for d, route in enumerate(mappings(rule.get("route"))):
            yield f"spec.http[{r}].route[{d}].destination", mapping(route.get("destination"))


def _texts(value: object) -> Iterable[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else ()


SERVER_ROOTS = Analyzer("destinationrule.CaCertificateAnalyzer", (DESTINATION_RULE,), _check_roots)
PATCH_OPERATIONS = Analyzer("envoyfilter.EnvoyPatchAnalyzer", (ENVOY_FILTER,), _check_patches)
SHARED_CERTIFICATES = Analyzer("gateway.CertificateAnalyzer", (GATEWAY,), _check_certificates)
ENTRY_ADDRESSES = Analyzer(
    "serviceentry.Analyzer", (SERVICE_ENTRY, INJECTOR_CONFIG, MUTATING_WEBHOOKS), _check_addresses
)
INTERNAL_GATEWAYS = Analyzer("virtualservice.GatewayAnalyzer", (VIRTUAL_SERVICE,), _check_gateways)
INGRESS_SUBSETS = Analyzer("virtualservice.DestinationHostAnalyzer", (VIRTUAL_SERVICE,), _check_subsets)
