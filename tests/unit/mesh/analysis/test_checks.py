"""Problems between objects: for each, objects that cause it and objects that resolve it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
import yaml

from pilot.config.problem import MAX_PROBLEMS, Problem, Severity
from pilot.ingest.mesh_config import decode_mesh_networks
from testing.edits.mesh_edits import rows_at
from testing.edits.mesh_slots import SLOTS
from testing.mesh.objects import at, endpoint_slice, make, pod, world
from testing.mesh.problems import problems_of
from testing.mesh.world import World, rows_of
from testing.rows import Rows
from testing.security.credentials import Authority, config_map, data_secret, tls_secret

Plain = Mapping[str, Any]
API = "api.a.svc.cluster.local"
SERVICE = make("Service", "api", "{clusterIP: 10.96.0.1, selector: {app: api}, ports: [{name: http, port: 80}]}", day=1)
SLICE = endpoint_slice("api", at("10.1.0.1", "api-0"), ports="[{name: http, port: 80}]")
POD = pod("api-0", "10.1.0.1", labels="{app: api, version: v1}")
EDGE = pod("edge-0", "10.1.0.9", namespace="edge", labels="{istio: ingress}")
EDGE_SERVICE = make(
    "Service", "edge", "{clusterIP: 10.96.0.9, selector: {istio: ingress}, ports: [{name: http, port: 80}]}", "edge"
)
AUTHORITY = Authority()
CERTIFICATE = AUTHORITY.issue("x.com")
SECRET = tls_secret("cert", CERTIFICATE, ca_crt=AUTHORITY.pem)
BASE = (SERVICE, SLICE, POD, EDGE, EDGE_SERVICE, SECRET)


def vs(spec: str, name: str = "v", day: int = 3) -> Plain:
    return make("VirtualService", name, spec, day=day)


def to(host: str, more: str = "") -> str:
    return f"http: [{{route: [{{destination: {{host: {host}{more}}}}}]}}]"


def dr(spec: str, name: str = "d", day: int = 3, namespace: str = "a") -> Plain:
    return make("DestinationRule", name, spec, namespace, day=day)


def gw(
    hosts: str = '"*"',
    port: str = "{number: 80, name: http, protocol: HTTP}",
    selector: str = "{istio: ingress}",
    tls: str = "",
    name: str = "gw",
) -> Plain:
    tls = f", tls: {{{tls}}}" if tls else ""
    return make(
        "Gateway", name, f"{{selector: {selector}, servers: [{{port: {port}, hosts: [{hosts}]{tls}}}]}}", "edge"
    )


def entry(spec: str, name: str = "e", day: int = 3) -> Plain:
    return make("ServiceEntry", name, f"{{ports: [{{number: 80, name: http, protocol: HTTP}}], {spec}}}", day=day)


def sidecar(spec: str, name: str = "s", day: int = 3) -> Plain:
    return make("Sidecar", name, spec, day=day)


def extension(spec: str) -> Plain:
    return make("TrafficExtension", "t", f"{{lua: {{inlineCode: 'x = 1'}}, {spec}}}", day=3)


def peer(spec: str, name: str = "p", day: int = 3, namespace: str = "a") -> Plain:
    return make("PeerAuthentication", name, spec, namespace, day=day)


def request(spec: str, namespace: str = "a") -> Plain:
    return make("RequestAuthentication", "r", spec, namespace)


def authorization(spec: str, namespace: str = "a") -> Plain:
    return make("AuthorizationPolicy", "z", spec, namespace)


def annotated(kind: str, name: str, spec: str, annotation: str, value: str) -> Plain:
    plain = make(kind, name, spec)
    plain["metadata"]["annotations"] = {annotation: value}
    return plain


def alias(name: str, target: str) -> Plain:
    return make("Service", name, f"{{type: ExternalName, externalName: {target}.a.svc.cluster.local}}")


class Row(NamedTuple):
    """Objects with one problem of this code at this path, and objects that resolve it when added or replaced."""

    code: str
    path: str
    causes: tuple[Plain, ...]
    fixes: tuple[Plain, ...]
    mesh: str = ""


MANY = make(
    "Service",
    "many",
    "{clusterIP: 10.96.0.2, selector: {app: api}, ports: [{name: http, port: 80}, {name: more, port: 81}]}",
)
V1 = "{name: v1, labels: {version: v1}}"
ALL = 'egress: [{hosts: ["*/*"]}]'
STRICT = peer("{mtls: {mode: STRICT}}", "default")
ON_GATEWAY = f"{{hosts: [x.com], gateways: [edge/gw], {to('api')}}}"
HTTPS = "{number: 80, name: https, protocol: HTTPS}"
NONE_TO_ALL = (
    "{outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: ghost.a.svc.cluster.local, port: {number: 80}}}}"
)
ROOTS = "tls: {mode: SIMPLE, credentialName: 'configmap://roots'}"
BY_CLAIM = '{match: [{headers: {"@request.auth.claims.sub": {exact: a}}}], route: [{destination: {host: api}}]}'
OTHER_TCP = make(
    "ServiceEntry", "other", "{hosts: [x.com], ports: [{number: 80, name: tcp, protocol: TCP}], resolution: DNS}", "b"
)
ROWS = [
    Row(
        "claims-not-verified",
        "spec.http[0].match[0].headers[@request.auth.claims.sub]",
        (gw(), vs(f"{{hosts: [x.com], gateways: [edge/gw], http: [{BY_CLAIM}]}}")),
        (request("{selector: {matchLabels: {istio: ingress}}, jwtRules: [{issuer: a}]}", "edge"),),
    ),
    Row(
        "no-request-principal",
        "spec.rules[0].from[0].source.requestPrincipals",
        (make("AuthorizationPolicy", "p", '{rules: [{from: [{source: {requestPrincipals: ["*"]}}]}]}'),),
        (request("{selector: {matchLabels: {app: api}}, jwtRules: [{issuer: a}]}"),),
    ),
    Row(
        "no-effect",
        "spec.http",
        (gw(port=HTTPS, tls="mode: PASSTHROUGH"), vs(ON_GATEWAY)),
        (gw(port=HTTPS, tls="mode: SIMPLE, credentialName: cert"),),
    ),
    Row("gateway-not-found", "spec.gateways[0]", (vs(ON_GATEWAY),), (gw(),)),
    Row(
        "gateway-not-bound",
        "spec.http[0].match[0].gateways[0]",
        (
            gw(),
            vs(
                f"{{hosts: [{API}], http: [{{match: [{{gateways: [edge/gw]}}], route: [{{destination: {{host: api}}}}]}}]}}"
            ),
        ),
        (
            vs(
                f"{{hosts: [{API}], gateways: [mesh, edge/gw], "
                "http: [{match: [{gateways: [edge/gw]}], route: [{destination: {host: api}}]}]}"
            ),
        ),
    ),
    Row("host-not-served", "spec.hosts[0]", (gw("y.com"), vs(ON_GATEWAY)), (gw('"*.com"'),)),
    Row("host-not-served", "spec.hosts[0]", (gw("b/x.com"), vs(ON_GATEWAY)), (gw("./x.com, a/x.com"),)),
    Row(
        "host-claimed",
        "spec.hosts[0]",
        (vs(f"{{hosts: [api], {to('api')}}}", "old", 2), vs(f"{{hosts: [{API}], {to('api')}}}")),
        (vs(f"{{hosts: [b.com], {to('api')}}}"),),
    ),
    Row(
        "destination-not-found",
        "spec.http[0].route[0].destination.host",
        (vs(f"{{hosts: [b.com], {to('late')}}}"),),
        (entry("hosts: [late.a.svc.cluster.local], resolution: DNS"),),
    ),
    Row(
        "destination-not-found",
        "spec.http[0].mirrors[0].destination.host",
        (
            vs(
                "{hosts: [b.com], http: [{route: [{destination: {host: api}}], mirrors: [{destination: {host: ghost}}]}]}"
            ),
        ),
        (vs("{hosts: [b.com], http: [{route: [{destination: {host: api}}], mirrors: [{destination: {host: api}}]}]}"),),
    ),
    Row(
        "destination-not-found",
        "spec.tcp[0].route[0].destination.host",
        (vs("{hosts: [b.com], tcp: [{route: [{destination: {host: ghost}}]}]}"),),
        (vs("{hosts: [b.com], tcp: [{route: [{destination: {host: api}}]}]}"),),
    ),
    Row(
        "port-not-found",
        "spec.http[0].route[0].destination.port.number",
        (vs(f"{{hosts: [b.com], {to('api', ', port: {number: 81}')}}}"),),
        (vs(f"{{hosts: [b.com], {to('api', ', port: {number: 80}')}}}"),),
    ),
    Row(
        "port-not-said",
        "spec.http[0].route[0].destination.port",
        (MANY, vs(f"{{hosts: [b.com], {to('many')}}}")),
        (vs(f"{{hosts: [b.com], {to('many', ', port: {number: 81}')}}}"),),
    ),
    Row(
        "subset-not-found",
        "spec.http[0].route[0].destination.subset",
        (vs(f"{{hosts: [b.com], {to('api', ', subset: v1')}}}"),),
        (dr(f"{{host: api, subsets: [{V1}]}}"),),
    ),
    Row(
        "delegate",
        "spec.http[0].delegate",
        (vs("{hosts: [b.com], http: [{delegate: {name: leaf}}]}"),),
        (vs(f"{{{to('api')}}}", "leaf"),),
    ),
    Row(
        "delegate-not-named",
        "spec.hosts",
        (vs(f"{{{to('api')}}}", "leaf"),),
        (vs("{hosts: [b.com], http: [{delegate: {name: leaf}}]}"),),
    ),
    Row(
        "namespace-not-found",
        "spec.exportTo[1]",
        (vs(f"{{hosts: [b.com], exportTo: [a, late], {to('api')}}}"),),
        (make("Namespace", "late", "{}", ""),),
    ),
    Row(
        "namespace-not-found",
        "spec.exportTo[0]",
        (dr("{host: api, exportTo: [late]}"),),
        (pod("x-0", "10.1.0.7", "late"),),
    ),
    Row(
        "namespace-not-found",
        "spec.exportTo[0]",
        (entry("hosts: [x.com], resolution: DNS, exportTo: [late]"),),
        (
            make(
                "ServiceEntry",
                "late",
                "{hosts: [y.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}",
                "late",
            ),
        ),
    ),
    Row(
        "namespace-not-found",
        "metadata.annotations[networking.istio.io/exportTo][1]",
        (annotated("Service", "web", "{ports: [{port: 80}]}", "networking.istio.io/exportTo", "a, late"),),
        (annotated("Service", "web", "{ports: [{port: 80}]}", "networking.istio.io/exportTo", "a, ."),),
    ),
    Row("alias-circle", "spec.externalName", (alias("one", "one"),), (alias("one", "api"),)),
    Row(
        "target-not-found",
        "spec.targetRefs[0].name",
        (request("{targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: late}]}"),),
        (pod("late-0", "10.1.0.6", labels="{gateway.networking.k8s.io/gateway-name: late}"),),
    ),
    Row(
        "target-not-found",
        "spec.targetRef.name",
        (request("{targetRef: {kind: Service, name: late}}"),),
        (request("{}"),),
    ),
    Row(
        "target-not-found",
        "spec.targetRef.name",
        (request("{targetRef: {group: networking.istio.io, kind: ServiceEntry, name: late}}"),),
        (request("{}"),),
    ),
    Row(
        "target-not-found",
        "spec.targetRefs[0].name",
        (authorization("{targetRefs: [{kind: Service, name: late}]}"),),
        (authorization("{}"),),
    ),
    Row(
        "provider-not-found",
        "spec.provider.name",
        (authorization("{action: CUSTOM, provider: {name: judge}, rules: [{}]}"),),
        (authorization("{rules: [{}]}"),),
    ),
    Row("no-effect", "spec.targetRef.kind", (request("{targetRef: {kind: Service, name: api}}"),), (request("{}"),)),
    Row(
        "host-not-found",
        "spec.host",
        (dr("{host: late}"),),
        (entry("hosts: [late.a.svc.cluster.local], resolution: DNS"),),
    ),
    Row(
        "host-not-found",
        "spec.host",
        (dr("{host: '*.example.com'}"),),
        (entry("hosts: [x.example.com], resolution: DNS"),),
    ),
    Row(
        "host-not-found",
        "spec.host",
        (dr("{host: '*.b.svc.cluster.local'}"),),
        (dr("{host: '*.a.svc.cluster.local'}"),),
    ),
    Row(
        "port-not-found",
        "spec.trafficPolicy.portLevelSettings[0].port.number",
        (
            dr(
                "{host: api, trafficPolicy: {portLevelSettings: [{port: {number: 81}, loadBalancer: {simple: RANDOM}}]}}"
            ),
        ),
        (
            dr(
                "{host: api, trafficPolicy: {portLevelSettings: [{port: {number: 80}, loadBalancer: {simple: RANDOM}}]}}"
            ),
        ),
    ),
    Row(
        "subset-without-endpoints",
        "spec.subsets[0].labels",
        (dr("{host: api, subsets: [{name: v2, labels: {version: v2}}]}"),),
        (pod("api-0", "10.1.0.1", labels="{version: v2, app: api}"),),
    ),
    Row(
        "subset-shadowed",
        "spec.subsets[0].name",
        (dr(f"{{host: api, subsets: [{V1}]}}", "old", 2), dr(f"{{host: api, subsets: [{V1}]}}")),
        (dr("{host: api, subsets: [{name: v3, labels: {version: v1}}]}"),),
    ),
    Row(
        "policy-shadowed",
        "spec.trafficPolicy",
        (
            dr("{host: '*.a.svc.cluster.local', trafficPolicy: {loadBalancer: {simple: RANDOM}}}", "old", 2),
            dr("{host: '*.a.svc.cluster.local', trafficPolicy: {loadBalancer: {simple: RANDOM}}}"),
        ),
        (dr("{host: api, trafficPolicy: {loadBalancer: {simple: RANDOM}}}"),),
    ),
    Row(
        "mtls-conflict",
        "spec.trafficPolicy.tls.mode",
        (STRICT, dr("{host: api, trafficPolicy: {tls: {mode: DISABLE}}}")),
        (dr("{host: api, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}"),),
    ),
    Row(
        "mtls-conflict",
        "spec.trafficPolicy.tls.mode",
        (peer("{mtls: {mode: DISABLE}}"), dr("{host: api, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}")),
        (peer("{mtls: {mode: PERMISSIVE}}"),),
    ),
    Row(
        "selector-without-workloads",
        "spec.workloadSelector",
        (dr("{host: api, workloadSelector: {matchLabels: {app: web}}}"),),
        (pod("web-0", "10.1.0.2", labels="{app: web}"),),
    ),
    Row(
        "credential-not-found",
        "spec.trafficPolicy.tls.credentialName",
        (dr("{host: api, trafficPolicy: {tls: {mode: SIMPLE, credentialName: ghost}}}"),),
        (dr("{host: api, trafficPolicy: {tls: {mode: SIMPLE, credentialName: cert}}}"),),
    ),
    Row(
        "credential-not-found",
        "spec.trafficPolicy.portLevelSettings[0].tls.credentialName",
        (dr(f"{{host: api, trafficPolicy: {{portLevelSettings: [{{port: {{number: 80}}, {ROOTS}}}]}}}}"),),
        (config_map("roots", {"cacert": AUTHORITY.pem.decode()}, "a"),),
    ),
    Row(
        "group-not-found",
        "metadata.annotations[istio.io/autoRegistrationGroup]",
        (annotated("WorkloadEntry", "vm-1", "{address: 10.9.0.1}", "istio.io/autoRegistrationGroup", "vm"),),
        (make("WorkloadGroup", "vm", "{template: {}}"),),
    ),
    Row(
        "selector-without-workloads",
        "spec.selector",
        (gw(selector="{istio: egress}"),),
        (pod("egress-0", "10.1.0.8", "far", labels="{istio: egress}"),),
    ),
    Row(
        "port-not-found",
        "spec.servers[0].port.number",
        (gw(port="{number: 8443, name: http, protocol: HTTP}"),),
        (gw(),),
    ),
    Row(
        "credential-not-found",
        "spec.servers[0].tls.credentialName",
        (gw("x.com", HTTPS, tls="mode: SIMPLE, credentialName: ghost"),),
        (gw("x.com", HTTPS, tls="mode: SIMPLE, credentialName: cert"),),
    ),
    Row(
        "credential-unusable",
        "spec.servers[0].tls.credentialName",
        (
            gw("x.com", HTTPS, tls="mode: SIMPLE, credentialName: cert"),
            data_secret("cert", {"tls.crt": CERTIFICATE.chain, "tls.key": b"x"}),
        ),
        (SECRET,),
    ),
    Row(
        "credential-unusable",
        "spec.servers[0].tls.credentialName",
        (
            gw("x.com", HTTPS, tls="mode: SIMPLE, credentialName: cert"),
            tls_secret("cert", CERTIFICATE, tls_ocsp__staple=b"x"),
        ),
        (tls_secret("cert", CERTIFICATE, tls_ocsp__staple=AUTHORITY.staple(CERTIFICATE)),),
    ),
    Row(
        "credential-unusable",
        "spec.servers[0].tls.credentialNames[0]",
        (gw("x.com", HTTPS, tls="mode: MUTUAL, credentialNames: [cert]"), tls_secret("cert", CERTIFICATE)),
        (data_secret("cert-cacert", {"cacert": AUTHORITY.pem}),),
    ),
    Row(
        "credential-not-found",
        "spec.servers[0].tls.caCertCredentialName",
        (gw("x.com", HTTPS, tls="mode: MUTUAL, credentialName: cert, caCertCredentialName: clients"),),
        (data_secret("clients", {"ca.crt": AUTHORITY.pem}),),
    ),
    Row(
        "credential-not-found",
        "spec.servers[0].tls.credentialName",
        (
            gw("x.com", HTTPS, tls="mode: SIMPLE, credentialName: 'kubernetes://far/cert'"),
            tls_secret("cert", CERTIFICATE, "far"),
        ),
        (gw("x.com", HTTPS, tls="mode: SIMPLE, credentialName: 'kubernetes://edge/cert'"),),
    ),
    Row(
        "bad-credential-name",
        "spec.servers[0].tls.credentialName",
        (gw("x.com", HTTPS, tls="mode: SIMPLE, credentialName: 'kubernetes-gateway://cert'"),),
        (gw("x.com", HTTPS, tls="mode: SIMPLE, credentialName: 'kubernetes-gateway://edge/cert'"),),
    ),
    Row(
        "credential-unusable",
        "spec.trafficPolicy.tls.credentialName",
        (
            dr("{host: api, trafficPolicy: {tls: {mode: MUTUAL, credentialName: cert}}}"),
            data_secret("cert", {"ca.crt": AUTHORITY.pem}),
        ),
        (SECRET,),
    ),
    Row(
        "host-not-found",
        "spec.egress[0].hosts[1]",
        (sidecar('{egress: [{hosts: ["./*", "b/*"]}]}'),),
        (
            make(
                "ServiceEntry",
                "e",
                "{hosts: [x.b], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}",
                "b",
            ),
        ),
    ),
    Row(
        "host-not-found",
        "spec.egress[0].hosts[0]",
        (sidecar('{egress: [{hosts: ["*/late.com"]}]}'),),
        (vs(f"{{hosts: [late.com], {to('api')}}}"),),
    ),
    Row(
        "destination-not-found",
        "spec.outboundTrafficPolicy.egressProxy.host",
        (sidecar(NONE_TO_ALL),),
        (sidecar(NONE_TO_ALL.replace("ghost", "api")),),
    ),
    Row(
        "selector-without-workloads",
        "spec.workloadSelector",
        (sidecar(f"{{workloadSelector: {{labels: {{app: web}}}}, {ALL}}}"),),
        (make("WorkloadEntry", "web", "{address: 10.9.0.1, labels: {app: web}}"),),
    ),
    Row(
        "default-sidecar-shadowed",
        "spec.workloadSelector",
        (sidecar(f"{{{ALL}}}", "old", 2), sidecar(f"{{{ALL}}}")),
        (sidecar(f"{{workloadSelector: {{labels: {{app: api}}}}, {ALL}}}"),),
    ),
    Row(
        "sidecar-shadowed",
        "spec.workloadSelector",
        (
            sidecar(f"{{workloadSelector: {{labels: {{app: api}}}}, {ALL}}}", "old", 2),
            sidecar(f"{{workloadSelector: {{labels: {{version: v1}}}}, {ALL}}}"),
        ),
        (sidecar(f"{{{ALL}}}"),),
    ),
    Row(
        "selector-without-workloads",
        "spec.workloadSelector",
        (entry("hosts: [x.com], resolution: STATIC, workloadSelector: {labels: {app: vm}}"),),
        (make("WorkloadEntry", "vm", "{address: 10.9.0.1, labels: {app: vm}}"),),
    ),
    Row(
        "host-claimed",
        "spec.hosts[0]",
        (entry(f"hosts: [{API}], resolution: DNS"),),
        (entry("hosts: [free.com], resolution: DNS"),),
    ),
    Row(
        "host-claimed",
        "spec.hosts[0]",
        (entry("hosts: [x.com], resolution: DNS", "old", 2), entry("hosts: [x.com], resolution: NONE")),
        (entry("hosts: [x.com], resolution: DNS"),),
    ),
    Row(
        "host-without-endpoints",
        "spec.resolution",
        (entry("hosts: [x.com], resolution: STATIC"),),
        (entry("hosts: [x.com], resolution: STATIC, endpoints: [{address: 10.0.0.9}]"),),
    ),
    Row(  # another ServiceEntry has endpoints
        "host-without-endpoints",
        "spec.resolution",
        (entry("hosts: [y.com], resolution: STATIC, addresses: [10.9.0.1]"),),
        (
            entry("hosts: [x.com], resolution: STATIC"),
            entry("hosts: [x.com], resolution: STATIC, endpoints: [{address: 10.0.0.9}]", "more", 4),
        ),
    ),
    Row(  # a VirtualService sends the requests elsewhere
        "host-without-endpoints",
        "spec.resolution",
        (entry("hosts: [x.com], resolution: STATIC, location: MESH_INTERNAL"),),
        (entry("hosts: [x.com], resolution: STATIC"), vs(f"{{hosts: [x.com], {to('api')}}}")),
    ),
    Row(  # release note 60447
        "protocol-conflict",
        "spec.ports[0].protocol",
        (OTHER_TCP, entry("hosts: [y.com, x.com], resolution: DNS")),
        (entry("hosts: [y.com], resolution: DNS"),),
    ),
    Row(
        "selector-without-workloads",
        "spec.selector",
        (peer("{selector: {matchLabels: {app: web}}}"),),
        (pod("web-0", "10.1.0.2", labels="{app: web}"),),
    ),
    Row(
        "policy-shadowed",
        "spec.selector",
        (peer("{mtls: {mode: STRICT}}", "old", 2), peer("{mtls: {mode: STRICT}}")),
        (peer("{selector: {matchLabels: {app: api}}}"),),
    ),
    Row(
        "selector-without-effect",
        "spec.selector",
        (peer("{selector: {matchLabels: {app: api}}}", namespace="istio-system"),),
        (peer("{mtls: {mode: STRICT}}", namespace="istio-system"),),
    ),
    Row(
        "selector-without-workloads",
        "spec.selector",
        (request("{selector: {matchLabels: {app: web}}}"),),
        (pod("web-0", "10.1.0.2", labels="{app: web}"),),
    ),
    Row(
        "selector-without-workloads",
        "spec.selector",
        (request("{selector: {matchLabels: {app: web}}}", "istio-system"),),
        (pod("web-0", "10.1.0.2", "far", labels="{app: web}"),),
    ),
    Row(
        "selector-without-workloads",
        "spec.selector",
        (extension("selector: {matchLabels: {app: web}}"),),
        (pod("web-0", "10.1.0.2", labels="{app: web}"),),
    ),
    Row(
        "target-not-found",
        "spec.targetRefs[0].name",
        (extension("targetRefs: [{kind: Service, name: late}]"),),
        (extension("priority: 1"),),
    ),
    Row(
        "service-not-found",
        "extensionProviders[3]",
        (),
        (entry("hosts: [zipkin.com], resolution: DNS"),),
        "extensionProviders: [{name: z, zipkin: {service: zipkin.com, port: 80}}]",
    ),
    Row("provider-not-found", "defaultProviders.tracing[0]", (), (), "defaultProviders: {tracing: [ghost]}"),
]

MESH_NETWORKS = "{networks: {n: {endpoints: [{fromRegistry: Kubernetes}], gateways: [{registryServiceName: late.com, port: 15443}]}}}"


def codes_and_paths(problems: tuple[Problem, ...]) -> list[tuple[str, str]]:
    return [(p.code, p.path) for p in problems]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.code}-{row.path}")
def test_problem_is_reported_until_resolved(row: Row) -> None:
    harness = world(*BASE, mesh_config=row.mesh)
    assert row.mesh or problems_of(harness) == ()
    harness.set(rows_of(row.causes))
    assert codes_and_paths(problems_of(harness)) == [(row.code, row.path)]
    if row.fixes:
        harness.set(rows_of(row.fixes))
        assert problems_of(harness) == ()


def test_destination_without_a_port_is_information() -> None:
    harness = world(*BASE, MANY, vs(f"{{hosts: [b.com], {to('many')}}}"))
    assert [(p.code, p.severity) for p in problems_of(harness)] == [("port-not-said", Severity.INFO)]


def test_selectors_are_not_checked_before_any_workload_is_known() -> None:
    selecting = (
        gw(),
        peer("{selector: {matchLabels: {app: web}}}"),
        peer("{selector: {matchLabels: {app: web}}}", "root", namespace="istio-system"),
        request("{selector: {matchLabels: {app: web}}}", "istio-system"),
        sidecar(f"{{workloadSelector: {{labels: {{app: web}}}}, {ALL}}}"),
    )
    harness = world(*selecting)
    assert "selector-without-workloads" not in {p.code for p in problems_of(harness)}
    harness.set(rows_of([POD]))
    assert [p.code for p in problems_of(harness)].count("selector-without-workloads") == 4


def test_checks_handle_every_object_variant() -> None:
    with Rows() as rows:
        for number, slot in enumerate(SLOTS):
            if slot.kind == "object":
                for variant in range(len(slot.variants)):
                    with rows.row(slot.name, variant):
                        world = World()
                        world.set(rows_at(number, variant))
                        problems_of(world)
                        assert world.mesh.failures == 0


def test_network_gateway_without_a_service_is_reported() -> None:
    harness = world(*BASE)
    networks, problems = decode_mesh_networks(yaml.safe_load(MESH_NETWORKS))
    assert not problems
    harness.mesh.commit([(harness.mesh.mesh, "networks", networks)])
    assert codes_and_paths(problems_of(harness)) == [
        ("service-not-found", "networks.n.gateways[0].registryServiceName")
    ]
    harness.set(rows_of([entry("hosts: [late.com], resolution: DNS")]))
    assert problems_of(harness) == ()


def test_unusable_credential_is_named() -> None:
    harness = world(*BASE)
    harness.set(
        rows_of(
            (
                gw("x.com", HTTPS, tls="mode: SIMPLE, credentialName: cert"),
                tls_secret("cert", CERTIFICATE, tls_ocsp__staple=b"x"),
            )
        )
    )
    assert "of Secret edge/cert " in next(p.message for p in problems_of(harness) if p.code == "credential-unusable")


def test_subset_without_endpoints_is_allowed_for_a_passthrough_host() -> None:
    harness = world(
        *BASE,
        dr("{host: x.com, subsets: [{name: v2, labels: {version: v2}}]}"),
        entry("hosts: [x.com], resolution: DNS"),
    )
    assert codes_and_paths(problems_of(harness)) == [("subset-without-endpoints", "spec.subsets[0].labels")]
    spec = "{hosts: [x.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}"
    harness.set(rows_of([make("ServiceEntry", "e", spec, "b")]))
    assert problems_of(harness) == ()


def test_alias_cycle_is_reported_on_every_alias_leading_into_it() -> None:
    harness = world(*BASE, alias("one", "two"), alias("two", "one"), alias("into", "one"), alias("fine", "api"))
    assert [(p.code, p.object.name) for p in problems_of(harness)] == [
        ("alias-circle", name) for name in ("into", "one", "two")
    ]
    harness.set(rows_of([alias("two", "api")]))
    assert problems_of(harness) == ()


def test_missing_subset_is_reported_with_the_subsets_that_are_defined() -> None:
    route = vs(f"{{hosts: [c.com], {to('api', ', subset: v3')}}}", "s")
    (problem,) = [p for p in problems_of(world(*BASE, dr(f"{{host: api, subsets: [{V1}]}}"), route)) if p.path]
    assert problem.message.endswith("defines the subset v3 (defined are v1), so requests get 503")


def test_routes_to_missing_destinations_are_errors_and_take_effect() -> None:
    routes = (
        vs(f"{{hosts: [b.com], {to('ghost')}}}", "r"),
        vs(f"{{hosts: [c.com], {to('api', ', subset: v1')}}}", "s"),
    )
    problems = {p.code: p for p in problems_of(world(*BASE, *routes))}
    for code in ("destination-not-found", "subset-not-found"):
        assert problems[code].severity is Severity.ERROR
        assert not problems[code].is_rejection


@pytest.mark.parametrize(
    ("rule", "effects"),
    [
        ("http: [{route: [{destination: {host: ghost}}]}]", ["so requests get 503"]),
        (
            "http: [{route: [{destination: {host: ghost}, weight: 30}, {destination: {host: none}, weight: 70}]}]",
            ["so 30 of 100 requests get 503", "so 70 of 100 requests get 503"],
        ),
        (
            "http: [{route: [{destination: {host: ghost}}, {destination: {host: api}, weight: 9}]}]",
            ["its weight is 0, so it gets no requests"],
        ),
        (
            "http: [{route: [{destination: {host: api, port: {number: 9}}}]}]",
            ["has no port 9, so requests get 503; its ports: 80"],
        ),
        ("tcp: [{route: [{destination: {host: ghost}}]}]", ["so connections are closed"]),
        ("http: [{route: [{destination: {host: api}}], mirrors: [{destination: {host: ghost}}]}]", ["not found"]),
    ],
)
def test_problem_of_a_destination_says_what_happens_to_requests(rule: str, effects: list[str]) -> None:
    problems = [p for p in problems_of(world(*BASE, vs(f"{{hosts: [b.com], {rule}}}"))) if "destination" in p.path]
    assert len(problems) == len(effects)
    assert all(p.message.endswith(effect) for p, effect in zip(problems, effects, strict=True)), problems


ROUTE = "{parentRefs: [{name: NAME}], rules: [{backendRefs: [{name: api, port: PORT}]}]}"
K8S_GATEWAY = "{gatewayClassName: CLASS, listeners: [{name: http, port: 80, protocol: HTTP}]}"


@pytest.mark.parametrize(
    ("kind", "spec", "code", "path", "end"),
    [
        (
            "HTTPRoute",
            ROUTE.replace("NAME", "webb").replace("PORT", "80"),
            "gateway-not-found",
            "spec.parentRefs[0].name",
            "namespace a has no Gateway webb; did you mean web?; known: web",
        ),
        (
            "HTTPRoute",
            ROUTE.replace("NAME", "web").replace("PORT", "8080"),
            "port-not-found",
            "spec.rules[0].backendRefs[0].port",
            f"{API} has no port 8080; its ports: 80",
        ),
        (
            "Gateway",
            K8S_GATEWAY.replace("CLASS", "istoi"),
            "class-not-found",
            "spec.gatewayClassName",
            "did you mean istio?; there are istio, istio-remote",
        ),
        (
            "Gateway",
            K8S_GATEWAY.replace("CLASS", "istio-ingress"),
            "class-not-found",
            "spec.gatewayClassName",
            "so the Gateway has no effect; there are istio, istio-remote",
        ),
    ],
)
def test_finding_about_a_route_names_the_route(kind: str, spec: str, code: str, path: str, end: str) -> None:
    version = "gateway.networking.k8s.io/v1"
    gateway = make("Gateway", "web", K8S_GATEWAY.replace("CLASS", "istio"), apiVersion=version)
    problems = problems_of(world(*BASE, gateway, make(kind, "mine", spec, apiVersion=version)))
    (problem,) = (p for p in problems if p.code == code)
    assert (problem.object.kind.name, problem.object.name, problem.path) == (kind, "mine", path)
    assert problem.message.endswith(end)
    assert not any(p.object.kind.name == "VirtualService" for p in problems)


@pytest.mark.parametrize(
    ("spec", "texts"),
    [
        ("{hosts: [x.com], PORTS: HTTP}", ["so requests to x.com get 503;", "or write resolution: DNS for"]),
        ("{hosts: [x.com], PORTS: TLS}", ["so connections to x.com are closed;"]),
        ('{hosts: ["*.x.com"], PORTS: TLS}', ["or write resolution: NONE to"]),
    ],
)
def test_static_service_entry_without_endpoints_says_the_effect_and_the_fix(spec: str, texts: list[str]) -> None:
    spec = re.sub("PORTS: (.*)}", r"resolution: STATIC, ports: [{name: p, number: 80, protocol: \1}]}", spec)
    (problem,) = problems_of(world(make("ServiceEntry", "e", spec)))
    assert all(text in problem.message for text in texts), problem.message


def test_missing_gateway_is_named_with_the_namespaces_that_have_it() -> None:
    other = make(
        "Gateway",
        "gate",
        "{selector: {a: b}, servers: [{port: {number: 80, name: h, protocol: HTTP}, hosts: [x.com]}]}",
        "edge",
    )
    spec = "{hosts: [x.com], gateways: [gate], http: [{redirect: {uri: /}}]}"
    (problem,) = [p for p in problems_of(world(other, vs(spec))) if p.code == "gateway-not-found"]
    assert problem.message == "Gateway a/gate not found, so the routes do not apply there; write edge/gate"


def test_similar_gateway_of_the_namespace_is_suggested() -> None:
    spec = "{hosts: [x.com], gateways: [edge/gww], http: [{redirect: {uri: /}}]}"
    (problem,) = [p for p in problems_of(world(gw(), vs(spec))) if p.code == "gateway-not-found"]
    assert problem.message.endswith("; did you mean edge/gw?")


def test_labels_of_a_subset_are_shown_with_the_values_of_endpoints() -> None:
    harness = world(*BASE, dr("{host: api, subsets: [{name: v2, labels: {app: api, version: V2}}]}"))
    (problem,) = [p for p in problems_of(harness) if p.code == "subset-without-endpoints"]
    assert problem.message == "no endpoint of api has the labels version: V2; values of version are v1"


def test_missing_host_is_named_with_the_namespaces_that_have_it() -> None:
    spec = "{clusterIP: 10.96.0.5, ports: [{name: http, port: 80}]}"
    carts = [make("Service", "cart", spec, namespace) for namespace in ("shop", "test")]
    problems = problems_of(world(*carts, vs(f"{{hosts: [b.com], {to('cart')}}}"), dr("{host: cart}")))
    end = "; write cart.shop.svc.cluster.local or cart.test.svc.cluster.local"
    assert {p.code: p.message for p in problems} == {
        "destination-not-found": f"service cart.a.svc.cluster.local not found, so requests get 503{end}",
        "host-not-found": f"service cart.a.svc.cluster.local not found{end}",
    }


def test_similar_service_of_the_namespace_is_suggested() -> None:
    spec = "{clusterIP: 10.96.0.5, ports: [{name: http, port: 80}]}"
    services = [make("Service", name, spec, "a") for name in ("reviews", "ratings", "details")]
    services += [make("Service", "reviwsx", spec, "b")]
    problems = problems_of(world(*services, vs(f"{{hosts: [b.com], {to('reviws')}}}"), dr("{host: reviws}")))
    assert {p.code for p in problems} == {"destination-not-found", "host-not-found"}
    assert all(p.message.endswith("; did you mean reviews.a.svc.cluster.local?") for p in problems), problems


def test_names_are_suggested_for_the_first_missing_services_only() -> None:
    service = make("Service", "reviews", "{clusterIP: 10.96.0.5, ports: [{name: http, port: 80}]}", "a")
    rules = ", ".join(
        f"{{match: [{{uri: {{exact: /{n}}}}}], route: [{{destination: {{host: review{n}}}}}]}}" for n in range(9)
    )
    problems = problems_of(world(service, vs(f"{{hosts: [b.com], http: [{rules}]}}")))
    assert [p.message.endswith("did you mean reviews.a.svc.cluster.local?") for p in problems] == [True] * 5 + [
        False
    ] * 4


def test_gateway_of_another_namespace_is_named_with_it() -> None:
    version = "gateway.networking.k8s.io/v1"
    spec = K8S_GATEWAY.replace("CLASS", "istio")
    gateways = [make("Gateway", "public", spec, namespace, apiVersion=version) for namespace in ("edge", "dmz")]
    route = make("HTTPRoute", "mine", ROUTE.replace("NAME", "public").replace("PORT", "80"), apiVersion=version)
    (problem,) = [p for p in problems_of(world(*BASE, *gateways, route)) if p.code == "gateway-not-found"]
    assert problem.message == "namespace a has no Gateway public; write namespace: dmz or edge"


def test_missing_host_is_not_guessed_if_many_namespaces_have_the_service() -> None:
    spec = "{clusterIP: 10.96.0.5, ports: [{name: http, port: 80}]}"
    carts = [make("Service", "cart", spec, namespace) for namespace in ("b", "c", "d", "e")]
    problems = problems_of(world(*carts, vs(f"{{hosts: [b.com], {to('cart')}}}")))
    assert problems[0].message.endswith("so requests get 503")


def test_similar_hostname_of_a_listener_is_suggested() -> None:
    version = "gateway.networking.k8s.io/v1"
    listeners = "{name: a, port: 80, protocol: HTTP, hostname: shop.x.com}, {name: b, port: 81, protocol: HTTP, hostname: y.org}"
    gateway = make("Gateway", "web", f"{{gatewayClassName: istio, listeners: [{listeners}]}}", apiVersion=version)
    spec = "{parentRefs: [{name: web}], hostnames: [shp.x.com], rules: [{backendRefs: [{name: api, port: 80}]}]}"
    problems = problems_of(world(*BASE, gateway, make("HTTPRoute", "mine", spec, apiVersion=version)))
    (problem,) = (p for p in problems if p.code == "no-matching-listener-hostname")
    assert problem.message.endswith("; did you mean shop.x.com?")


def test_problems_of_an_object_are_listed_up_to_the_maximum() -> None:
    servers = [
        {"port": {"number": n, "name": f"http-{n}", "protocol": "HTTP"}, "hosts": ["*"]} for n in range(1000, 1200)
    ]
    gateway = make("Gateway", "many", yaml.safe_dump({"selector": {"istio": "ingress"}, "servers": servers}))
    problems = problems_of(world(*BASE, gateway))
    assert [problem.path for problem in problems[:MAX_PROBLEMS]] == [
        f"spec.servers[{n}].port.number" for n in range(MAX_PROBLEMS)
    ]
    assert [(problem.code, problem.object.name) for problem in problems[MAX_PROBLEMS:]] == [("more-problems", "many")]
