"""Every setting, label and annotation changes the configuration of some proxy."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import Any

import msgspec
import pytest
import yaml

from pilot.config.indexes import SERVICE_NAME_LABEL
from pilot.config.kubernetes.service import EXPORT_TO
from pilot.config.networking.service_entry import (
    CLUSTER_ENDPOINTS,
    HOST_ENDPOINTS,
    PORT_ENDPOINTS,
    WORKLOAD_ENDPOINTS,
)
from pilot.config.networking.workload_entry import REGISTRATION_GROUP
from pilot.ingest.mesh_config import decode_mesh_networks
from pilot.lib import labels
from pilot.lib.duration import Duration
from pilot.mesh.gateways.gateways import DISABLE_PORT_TRANSLATION
from pilot.mesh.registry.auto_addresses import OPT_OUT
from pilot.mesh.registry.endpoint_slices import MULTICLUSTER_LABEL
from pilot.mesh.registry.external_addresses import NODE_SELECTOR
from pilot.mesh.registry.kubernetes_services import CANONICAL_ACCOUNTS, KUBERNETES_ACCOUNTS, TRAFFIC_DISTRIBUTION
from pilot.mesh.registry.networks import GATEWAY_PORT_LABEL
from pilot.mesh.registry.service_entries import CONNECT_STRATEGY
from pilot.mesh.registry.workload_entries import HEALTH_CHECKS
from pilot.settings.mesh import MeshSettings
from testing.edits.mesh_edits import Snapshot, snapshot
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import World, proxy, read_optional, rows_of

pytestmark = pytest.mark.slow

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "cases"
OTHER = {
    "namespace": "elsewhere",
    "compliance_policy": "fips-140-2",
    "ip_autoallocate_ipv4": "10.99.0.0/16",
    "ip_autoallocate_ipv6": "fd99::/48",
    "metadata_exchange_labels": ("app",),
    "remote_jwks": "true",
    "largest_key_sets": 1,
    "max_services": 1,
}
STATUS_SETTINGS = {("ambient", "status")}  # changes only object status
SETTINGS = [
    (section.name, field.name)
    for section in dataclasses.fields(MeshSettings)
    for field in dataclasses.fields(getattr(MeshSettings(), section.name))
    if (section.name, field.name) not in STATUS_SETTINGS
]


def other_value(name: str, value: Any) -> Any:
    """Return another value of a setting."""
    if name in OTHER:
        return OTHER[name]
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}.other"
    return value + Duration.of(1) if isinstance(value, Duration) else value + 1


# -- a mesh with features missing from the golden ones ----------------------------------------------------------------------------

HTTP = "[{name: http, port: 80}]"
ENTRY_HTTP = "[{name: http, number: 80, protocol: HTTP}]"
MANY = [f"h{n}.example.com" for n in range(30)]
INLINE_KEYS = '{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}'
TLS_FILES = {"TLS_CLIENT_CERT_CHAIN": "/c.pem", "TLS_CLIENT_KEY": "/k.pem", "TLS_CLIENT_ROOT_CERT": "/r.pem"}
PROXIES = (
    proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}, NETWORK="here", **TLS_FILES),
    proxy("sidecar", "nobody", "a", "10.1.0.7", {}),
    proxy("sidecar", "six-0", "a", "fd00::6", {}, DNS_CAPTURE="true", DNS_AUTO_ALLOCATE="true"),
    msgspec.structs.replace(proxy("sidecar", "dual-0", "a", "10.1.0.8", {}), ips=("10.1.0.8", "fd00::8")),
    proxy("router", "edge-0", "edge", "10.1.0.9", {"istio": "ingress"}),
    proxy("sidecar", "alone-0", "alone", "10.1.0.10", {}),
)
OBJECTS: tuple[Plain, ...] = (
    make("Namespace", "istio-system", labels="{topology.istio.io/network: there}"),
    make(
        "Service",
        "api",
        f"{{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00:96::1'], selector: {{app: api}}, ports: {HTTP}}}",
    ),
    endpoint_slice("api", at("10.1.0.2", "api-0"), at("10.1.0.3", "api-1"), ports=HTTP),
    pod("api-0", "10.1.0.2", labels="{app: api, security.istio.io/tlsMode: istio}"),
    pod("api-1", "10.1.0.3", labels="{app: api, istio.io/draining: 'true', topology.istio.io/network: here}"),
    pod("seven-0", "10.1.0.7", labels="{app: seven}"),
    make("Service", "seven", f"{{clusterIP: 10.96.0.7, selector: {{app: seven}}, ports: {HTTP}}}"),
    make(
        "Service",
        "sticky",
        f"{{clusterIP: 10.96.0.2, ports: {HTTP}}}",
        labels="{istio.io/persistent-session-header: x-session}",
    ),
    make("Service", "db", "{clusterIP: 10.96.0.3, ports: [{name: mysql, port: 3306}]}"),
    make(
        "Service",
        "wide",
        "{clusterIP: 10.96.0.5, ports: [{name: a, port: 1}, {name: b, port: 2}, {name: c, port: 3}, {name: d, port: 4}]}",
    ),
    make("Service", "vms", f"{{clusterIP: 10.96.0.4, selector: {{app: vm}}, ports: {HTTP}}}"),
    make("WorkloadEntry", "vm-0", "{address: 10.9.0.1, network: here, labels: {app: vm}}"),
    make(
        "WorkloadEntry",
        "ill",
        "{address: 10.9.0.2, network: here, labels: {app: vm}}",
        annotations="{proxy.istio.io/health-checks-enabled: 'true'}",
    ),
    make(
        "Service",
        "gateway",
        "{type: LoadBalancer, ports: [{name: tls, port: 15443}]}",
        labels="{topology.istio.io/network: there}",
    )
    | {"status": {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}]}}},
    make(
        "ServiceEntry", "out", "{hosts: [out.com], resolution: DNS, ports: [{number: 443, name: tls, protocol: TLS}]}"
    ),
    make(
        "ServiceEntry",
        "chosen",
        f"{{hosts: [chosen.com], resolution: STATIC, ports: {ENTRY_HTTP}, workloadSelector: {{labels: {{app: api}}}}}}",
    ),
    make("ServiceEntry", "large", f"{{hosts: [{', '.join(MANY)}], resolution: DNS, ports: {ENTRY_HTTP}}}", day=9),
    make("ServiceEntry", "first", f"{{hosts: [two.b.svc.cluster.local], resolution: DNS, ports: {ENTRY_HTTP}}}"),
    make("Service", "two", f"{{clusterIP: 10.96.0.12, ports: {HTTP}}}", "b"),
    make("Sidecar", "alone", "{egress: [{hosts: ['./*']}]}", "alone"),
    make(
        "VirtualService",
        "alone",
        "{hosts: [alone.com], http: [{route: [{destination: {host: two.b.svc.cluster.local}}]}]}",
        "alone",
    ),
    make(
        "DestinationRule",
        "out",
        "{host: out.com, trafficPolicy: {tls: {mode: MUTUAL, clientCertificate: /c, privateKey: /k, sni: out.com}}}",
    ),
    make("DestinationRule", "one", "{host: api, exportTo: ['.'], subsets: [{name: v1, labels: {app: api}}]}", day=1),
    make("DestinationRule", "two", "{host: api, exportTo: ['*'], subsets: [{name: v2, labels: {app: api}}]}", day=2),
    make("AuthorizationPolicy", "one", "{action: CUSTOM, provider: {name: one}, rules: [{}]}"),
    make("AuthorizationPolicy", "two", "{action: CUSTOM, provider: {name: two}, rules: [{}]}"),
    make("RequestAuthentication", "keys", "{jwtRules: [{issuer: us, jwksUri: 'http://api.a.svc.cluster.local/keys'}]}"),
    make("RequestAuthentication", "inline", f"{{jwtRules: [{{issuer: them, jwks: '{INLINE_KEYS}'}}]}}"),
    make("ServiceExport", "api"),
    make("ServiceImport", "api", "{ips: [10.99.0.1]}"),
    make(
        "Gateway",
        "gw",
        '{selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}',
    ),
)
WEST: tuple[Plain, ...] = (
    make("Service", "peers", "{clusterIP: None, ports: [{name: tcp, port: 90}]}"),
    endpoint_slice("peers", at("10.2.0.2", "peers-0"), ports="[{name: tcp, port: 90}]"),
    pod("peers-0", "10.2.0.2", spec="{subdomain: peers}"),
    make("ServiceExport", "peers"),
)
MESH = """extensionProviders:
- {name: one, envoyExtAuthzHttp: {service: api.a.svc.cluster.local, port: 80}}
- {name: two, envoyExtAuthzHttp: {service: seven.a.svc.cluster.local, port: 80}}
"""
NETWORKS = {"networks": {"near": {"endpoints": [{"fromCidr": "10.0.0.0/8"}], "gateways": []}}}
ENVIRON = {
    "PILOT_ENABLE_PERSISTENT_SESSION_FILTER": "true",
    "ENABLE_MCS_SERVICE_DISCOVERY": "true",
    "ENABLE_MCS_HOST": "true",
    "PILOT_MAX_SERVICE_ENTRY_ENDPOINTS": str(
        (len(MANY) - 1) * HOST_ENDPOINTS
        + (len(MANY) + 3) * CLUSTER_ENDPOINTS
        + 2 * PORT_ENDPOINTS
        + 2 * WORKLOAD_ENDPOINTS
        - 1
    ),
    "PILOT_MAX_SERVICE_PORTS": "1",
}


def with_change(settings: MeshSettings, section: str, name: str) -> MeshSettings:
    part = getattr(settings, section)
    return dataclasses.replace(
        settings, **{section: dataclasses.replace(part, **{name: other_value(name, getattr(part, name))})}
    )


def custom_case(section: str = "", name: str = "", *more: Plain) -> Snapshot:
    """Return the configuration of the proxies of the mesh above plus more objects, with one setting changed."""
    harness = World(MESH, environ=ENVIRON)
    if section:
        harness.mesh.settings = with_change(harness.mesh.settings, section, name)
    networks, problems = decode_mesh_networks(NETWORKS)
    assert not problems
    harness.commit([("MeshConfig", "networks", networks)])
    harness.set({**rows_of((*OBJECTS, *more)), **rows_of(WEST, "west")})
    return snapshot(harness, [harness.connect(p) for p in PROXIES])


def golden_case(case: str, section: str = "", name: str = "") -> Snapshot:
    """Return the configuration of the proxies of a golden mesh, with one setting changed."""
    folder = GOLDEN / case
    harness = World(read_optional(folder / "mesh.yaml"), environ=yaml.safe_load(read_optional(folder / "env.yaml")))
    if section:
        harness.mesh.settings = with_change(harness.mesh.settings, section, name)
    harness.apply(read_optional(folder / "objects.yaml"))
    return snapshot(
        harness,
        [
            harness.connect(proxy(kind=p.pop("type"), **p))
            for p in yaml.safe_load(read_optional(folder / "proxies.yaml"))
        ],
    )


@functools.cache
def unchanged(case: str) -> Snapshot:
    return golden_case(case) if case else custom_case()


@pytest.mark.parametrize(("section", "name"), SETTINGS, ids=[f"{section}.{name}" for section, name in SETTINGS])
def test_setting_changes_some_proxy_configuration(section: str, name: str) -> None:
    assert custom_case(section, name) != unchanged("") or any(
        golden_case(case.name, section, name) != unchanged(case.name)
        for case in sorted(GOLDEN.iterdir())
        if case.is_dir()
    )


# -- labels and annotations ------------------------------------------------------------------------------------------------

WEB_POD = pod("web-0", "10.1.0.1", labels="{app: web}")
API_POD = pod("api-0", "10.1.0.2", labels="{app: api, security.istio.io/tlsMode: istio}")
NEAR_POD = pod(
    "api-1", "10.1.0.3", labels="{app: api, topology.istio.io/network: here, security.istio.io/tlsMode: istio}"
)
API_SERVICE = make("Service", "api", f"{{clusterIP: 10.96.0.1, selector: {{app: api}}, ports: {HTTP}}}")
API_SLICE = endpoint_slice("api", at("10.1.0.2", "api-0"), at("10.1.0.3", "api-1"), ports=HTTP)
PLAIN = make("Service", "plain", f"{{clusterIP: 10.96.0.40, ports: {HTTP}}}")
ROUTED = make(
    "Service",
    "edge",
    "{clusterIP: 10.96.0.41, selector: {istio: ingress}, ports: [{port: 80, targetPort: 8080}]}",
    "edge",
)
TCP_ENTRY = "resolution: DNS, ports: [{number: 90, name: tcp, protocol: TCP}]"
ENTRY = make(
    "ServiceEntry", "e", f"{{hosts: [e.com], {TCP_ENTRY}, endpoints: [{{address: 1.2.3.4}}, {{address: 1.2.3.5}}]}}"
)
VM = make("WorkloadEntry", "vm-1", "{address: 10.9.0.3, network: here, labels: {app: vm}}")
THERE = "{topology.istio.io/network: there}"
NODE_PORT = make("Service", "way", "{type: NodePort, ports: [{name: tls, port: 15443, nodePort: 30000}]}", labels=THERE)
NODE = make("Node", "n", labels="{role: edge}") | {
    "status": {"addresses": [{"type": "ExternalIP", "address": "8.8.8.8"}]}
}
GATEWAY = make("Service", "gateway2", "{type: LoadBalancer, ports: [{name: tls, port: 15444}]}", labels=THERE) | {
    "status": {"loadBalancer": {"ingress": [{"ip": "9.9.9.8"}]}}
}
LABELS: tuple[tuple[str, str, Plain], ...] = (
    (labels.CANONICAL_NAME, "other", NEAR_POD),
    (labels.CANONICAL_REVISION, "other", NEAR_POD),
    (labels.WORKLOAD_NAME, "other", NEAR_POD),
    (labels.LOCALITY, "r.z.s", NEAR_POD),
    (labels.NETWORK, "here", API_POD),
    (labels.TLS_MODE, "istio", NEAR_POD),
    (OPT_OUT, "false", make("ServiceEntry", "f", f"{{hosts: [f.com], {TCP_ENTRY}}}")),
    (MULTICLUSTER_LABEL, "api", API_SLICE),
    (SERVICE_NAME_LABEL, "api", API_SLICE),
    (GATEWAY_PORT_LABEL, "15444", GATEWAY),
    (DISABLE_PORT_TRANSLATION, "true", ROUTED),
)
ANNOTATIONS: tuple[tuple[str, str, Plain], ...] = (
    (CONNECT_STRATEGY, "RACE_FIRST_TCP_CONNECT", ENTRY),
    (EXPORT_TO, "~", PLAIN),
    (TRAFFIC_DISTRIBUTION, "PreferClose", API_SERVICE),
    (CANONICAL_ACCOUNTS, "spiffe://x/ns/a/sa/b", API_SERVICE),
    (KUBERNETES_ACCOUNTS, "other", API_SERVICE),
    (NODE_SELECTOR, '{"role": "edge"}', NODE_PORT),
    (HEALTH_CHECKS, "true", VM),
    (REGISTRATION_GROUP, "group", VM),
)


@pytest.mark.parametrize(
    ("field", "key", "value", "plain"),
    [*(("labels", *row) for row in LABELS), *(("annotations", *row) for row in ANNOTATIONS)],
    ids=[row[0] for row in (*LABELS, *ANNOTATIONS)],
)
def test_label_or_annotation_changes_some_proxy_configuration(field: str, key: str, value: str, plain: Plain) -> None:
    without = {name: v for name, v in (plain["metadata"].get(field) or {}).items() if name != key}
    bare, marked = (
        {**plain, "metadata": {**plain["metadata"], field: entries}} for entries in (without, {**without, key: value})
    )
    assert custom_case("", "", NODE, bare) != custom_case("", "", NODE, marked)
