"""What random edits of a whole mesh are made of: slots, each of which holds one of its variants or nothing.

Objects name each other by few names, so that most edits matter to somebody. A new kind, or another way that an object
may look, is one more entry. `kind` of a slot says what its variants are: objects of users as plain data, the mesh config or the mesh
networks as YAML, the node of a proxy that connects, comes back with other metadata, and leaves, or rows that the process itself commits.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pilot.lib.xds_types import CLUSTER, ENDPOINT, EXTENSION, LISTENER, ROUTE, SECRET
from pilot.model.endpoint import Locality
from pilot.model.inputs import EVERY_ACCOUNT, AccountKey
from pilot.model.jwks import JwksKey
from pilot.model.proxy import Proxy
from tests.support.credentials import Authority, config_map, data_secret, tls_secret
from tests.support.gateway_slots import GATEWAYS
from tests.support.objects import Plain, at, endpoint_slice, make, pod
from tests.support.slot import Slot, one_of
from tests.support.world import proxy


def each(kind: str, name: str, namespace: str, *specs: str, **more: Any) -> Slot:
    """A slot of an object by its specs, as YAML without the outer braces."""
    return one_of(*(make(kind, name, f"{{{spec}}}", namespace, **more) for spec in specs))


def service(name: str, namespace: str, ip: str, *specs: str, **more: Any) -> list[Plain]:
    """Variants of a Service; each spec is the rest of it."""
    return [make("Service", name, f"{{clusterIP: {ip}, clusterIPs: [{ip}], selector: {{app: {name}}}, {spec}}}", namespace, **more) for spec in specs]


def to(host: str, subset: str = "") -> str:
    """The route of an HTTP, TCP or TLS rule."""
    return f"route: [{{destination: {{host: {host}{', subset: ' + subset if subset else ''}}}}}]"


WEST = "west"
"""The other cluster, which has namesakes of what is in the own one."""


# -- proxies ---------------------------------------------------------------------------------------------------------------

STOCK = frozenset(("envoy.filters.http.router", "envoy.filters.network.tcp_proxy"))
FIRST_ZONE, SECOND_ZONE = Locality("r1", "z1"), Locality("r2", "z2")


def node(connected: Proxy, *changes: Mapping[str, Any]) -> Slot:
    """A slot of a proxy: as it is, and with each change of its fields (`metadata` is merged in)."""

    def changed(change: Mapping[str, Any]) -> Proxy:
        fields = {**change, "metadata": {**connected.metadata, **change.get("metadata", {})}}
        return msgspec.structs.replace(connected, **fields)

    return Slot(f"Proxy {connected.id} {connected.cluster_id}", "proxy", (connected, *(changed(c) for c in changes)), 0.05)


def proved(connected: Proxy) -> Proxy:
    """The proxy, which has proved to run as its namespace's default account."""
    return msgspec.structs.replace(connected, identity=f"spiffe://cluster.local/ns/{connected.namespace}/sa/default")


PROXIES = [
    node(
        proved(proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web", "version": "v1"}, NODE_NAME="n1", NETWORK="net1")),
        {"metadata": {"NETWORK": "net2"}, "locality": SECOND_ZONE},
        {"metadata": {"NODE_NAME": "n2"}, "locality": FIRST_ZONE},
        {"metadata": {"PROXY_CONFIG": {"tracing": {"sampling": 50}, "proxyHeaders": {"preserveHttp1HeaderCase": True}}}},
    ),
    node(
        proxy("sidecar", "api-0", "b", "10.1.0.2", {"app": "api"}, INTERCEPTION_MODE="TPROXY", NODE_NAME="n2"),
        {"metadata": {"INTERCEPTION_MODE": "REDIRECT", "LABELS": {"app": "web"}}},
        {"metadata": {"TLS_CLIENT_CERT_CHAIN": "/c", "TLS_CLIENT_KEY": "/k", "TLS_CLIENT_ROOT_CERT": "/r"}},
    ),
    node(
        proxy("sidecar", "none-0", "b", "10.1.0.3", {"app": "db"}, INTERCEPTION_MODE="NONE", HTTP_PROXY_PORT="15002", IDLE_TIMEOUT="5s"),
        {"metadata": {"HTTP10": "1", "INBOUND_LISTENER_EXACT_BALANCE": "true"}},
    ),
    node(
        msgspec.structs.replace(
            proxy("sidecar", "dual-0", "a", "10.1.0.4", {"app": "head"}, DNS_CAPTURE="true", DNS_AUTO_ALLOCATE="true"), ips=("10.1.0.4", "fd00::4")
        ),
        {"metadata": {"DNS_CAPTURE": "false"}},
        {"ips": ("fd00::4", "10.1.0.4")},
    ),
    node(proxy("sidecar", "six-0", "a", "fd00::5", {"app": "web"}), {"ips": ("10.1.0.5",)}),
    node(proxy("sidecar", "vm", "a", "10.9.0.1", {"app": "vm"}), {"ips": ("10.9.0.2",)}, {"metadata": {"LABELS": {"app": "other"}}}),
    node(
        proxy("sidecar", "far-0", "c", "10.1.0.7", {"app": "far"}, CLUSTER_ID="other", REQUESTED_NETWORK_VIEW="net2"),
        {"metadata": {"REQUESTED_NETWORK_VIEW": ""}, "locality": SECOND_ZONE},
        {"namespace": "b"},
    ),
    node(
        msgspec.structs.replace(proxy("sidecar", "stock-0", "c", "10.1.0.8", {"app": "stock"}), extensions=STOCK),
        {"extensions": None},
        {"metadata": {"credential": "true", "file-credential": "true"}},
    ),
    node(
        proved(proxy("router", "ingress-0", "edge", "10.1.0.9", {"istio": "ingress"})),
        {"identity": ""},
        {"metadata": {"CLUSTER_ID": WEST}},
        {"metadata": {"LABELS": {"istio": "egress"}}},
        {"metadata": {"NETWORK": "net2", "UNPRIVILEGED_POD": "true"}},
        {"locality": SECOND_ZONE},
    ),
    node(
        proved(proxy("router", "egress-0", "a", "10.1.0.10", {"istio": "egress"}, REQUESTED_NETWORK_VIEW="net1")),
        {"metadata": {"LABELS": {"istio": "ingress"}}},
    ),
    node(proxy("sidecar", "web-0", "a", "10.2.0.1", {"app": "web"}, CLUSTER_ID=WEST), {"locality": SECOND_ZONE}, {"metadata": {"NETWORK": "net2"}}),
    node(
        proxy("sidecar", "grpc-0", "a", "10.1.0.12", {"app": "web"}, GENERATOR="grpc"),
        {"namespace": "b"},
        {"metadata": {"GENERATOR": ""}},
        {"dns_domain": "b.svc.cluster.local"},
    ),
    node(proxy("ztunnel", "zt-0", "istio-system", "10.1.0.11"), {"metadata": {"NODE_NAME": "n1"}}),
]


# -- the mesh --------------------------------------------------------------------------------------------------------------

MESH = Slot(
    "MeshConfig",
    "mesh",
    (
        "{rootNamespace: b}",
        "{trustDomain: td1, trustDomainAliases: [td2], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}",
        "{enableAutoMtls: false, enableTracing: false, accessLogFile: /dev/stdout, connectTimeout: 3s}",
        "{outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}, tcpKeepalive: {time: 7s}, h2UpgradePolicy: UPGRADE}",
        "{outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: SIMPLE, sni: s.example.com}}, dnsRefreshRate: 9s}",
        "{inboundTrafficPolicy: {mode: LOCALHOST}, protocolDetectionTimeout: 2s, proxyHttpPort: 15007, meshMTLS: {minProtocolVersion: TLSV1_3}}",
        "{defaultConfig: {tracing: {sampling: 10}, proxyHeaders: {server: {disabled: true}}, discoveryAddress: 'web.a.svc:15012'}}",
        "{defaultServiceExportTo: ['.'], defaultVirtualServiceExportTo: ['.'], defaultDestinationRuleExportTo: ['.']}",
        "{localityLbSetting: {enabled: true, distribute: [{from: r1/*, to: {r1/*: 80, r2/*: 20}}]}}",
        "{localityLbSetting: {enabled: true, failoverPriority: [topology.istio.io/network]}, serviceSettings: [{settings: {clusterLocal: true}, hosts: ['*.b.svc.cluster.local']}]}",
        "{defaultHttpRetryPolicy: {attempts: 7, retryOn: 5xx}, defaultInboundHttpRetryPolicy: {attempts: 1, retryOn: 5xx}, pathNormalization: {normalization: MERGE_SLASHES}}",
        "{tlsDefaults: {minProtocolVersion: TLSV1_3}, serviceEntryVisibility: {defaultVisibility: NAMESPACE}}",
        "{extensionProviders: [{name: sds, sds: {name: sds, service: api.b.svc.cluster.local, port: 80}}]}",
        "{extensionProviders: [{name: judge, envoyExtAuthzGrpc: {service: b/api.b.svc.cluster.local, port: 80}}]}",
        "{extensionProviders: [{name: judge, envoyExtAuthzHttp: {service: api.b.svc.cluster.local, port: 80, failOpen: true}}]}",
        "{extensionProviders: [{name: z, zipkin: {service: web.a.svc.cluster.local, port: 80}}], defaultProviders: {tracing: [z], metrics: [prometheus]}}",
        "{extensionProviders: [{name: z, opentelemetry: {service: b/api.b.svc.cluster.local, port: 80, serviceAttributeEnrichment: OTEL_SEMANTIC_CONVENTIONS}}, {name: als, envoyTcpAls: {service: api.b.svc.cluster.local, port: 80}}], defaultProviders: {accessLogging: [als]}}",
        "{extensionProviders: [{name: z, datadog: {service: web.a.svc.cluster.local, port: 80}}, {name: als, envoyFileAccessLog: {path: /x, logFormat: {labels: {a: '%PROTOCOL%'}}}}], accessLogFile: /y, accessLogEncoding: JSON}",
        "{defaultTrafficPolicy: {connectionPool: {tcp: {maxConnections: 3}}, outlierDetection: {consecutive5xxErrors: 9}}}",
        "{discoverySelectors: [{matchLabels: {istio-injection: enabled}}]}",
        "{ingressControllerMode: 'OFF'}",
    ),
    0.4,
)
NETWORKS = Slot(
    "MeshNetworks",
    "networks",
    (
        "{networks: {net2: {endpoints: [{fromCidr: 10.1.0.0/29}], gateways: [{address: 9.9.9.1, port: 15443}, {address: gw.example.com, port: 15443}]}}}",
        "{networks: {net1: {endpoints: [{fromRegistry: Kubernetes}], gateways: [{registryServiceName: eastwest.istio-system.svc.cluster.local, port: 15443}, {address: gw.example.com, port: 15443}]}}}",
        "{networks: {net2: {endpoints: [{fromCidr: 10.7.0.0/16}], gateways: [{address: gw.example.com, port: 15443}, {address: 9.9.9.2, port: 443}]}}}",
    ),
)


# -- Kubernetes ------------------------------------------------------------------------------------------------------------

HTTP = "ports: [{name: http, port: 80, targetPort: 8080}]"
BOTH = "ports: [{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 9000}]"
MESH_LABEL = "security.istio.io/tlsMode: istio"
WEB_AT = at("10.1.0.1", "web-0"), at("10.7.0.1")
API_AT = at("10.1.0.2", "api-0", namespace="b"), at("10.7.0.2")
TWO_PORTS = "[{name: http, port: 8080}, {name: tcp, port: 9000}]"


def slices(name: str, namespace: str, listed: Sequence[str], **more: Any) -> Slot:
    some = [(*listed,), listed[:1], (), (listed[0].replace("ready: true", "ready: false"),)]
    return one_of(*(endpoint_slice(name, *s, namespace=namespace, ports=TWO_PORTS, **more) for s in some))


def pods(name: str, namespace: str, ip: str, *labels: str) -> Slot:
    """A Pod with each set of labels, on another node, of another account, not ready, and ended."""
    spec = "{{nodeName: {}, serviceAccountName: {}, containers: [{{name: c, image: i, ports: [{{name: web, containerPort: 8080}}]}}]}}"
    first = labels[0]
    return one_of(
        *(pod(name, ip, namespace, spec.format("n1", "one"), text) for text in labels),
        pod(name, ip, namespace, spec.format("n2", "two"), first),
        pod(name, ip, namespace, spec.format("n1", "one"), first, ready=False),
        pod(name, ip, namespace, spec.format("n1", "one"), first, phase="Failed"),
    )


KUBERNETES = [
    one_of(
        *service("web", "a", "10.96.0.1", BOTH, HTTP, "ports: [{name: tcp, port: 80, targetPort: 9000}]", "ports: [{port: 80, targetPort: web}]"),
        *service("web", "a", "10.96.0.1", BOTH, annotations="{networking.istio.io/exportTo: '.'}"),
        *service("web", "a", "None", BOTH),
        *service("web", "a", "10.96.0.1", BOTH, labels="{istio.io/persistent-session: c}"),
        *service("web", "a", "10.96.0.1", f"externalIPs: [9.9.9.8], {BOTH}", day=3),
    ),
    one_of(
        *service("api", "b", "10.96.0.2", BOTH, HTTP, "internalTrafficPolicy: Local, " + BOTH, "trafficDistribution: PreferClose, " + HTTP, day=2),
        *service("api", "b", "None", HTTP),
        make("Service", "api", "{type: ExternalName, externalName: x.example.com, ports: [{name: http, port: 80}]}", "b"),
    ),
    one_of(
        *service("db", "b", "10.96.0.3", "ports: [{name: tcp, port: 9000}]", "ports: [{name: mongo, port: 9000}]", "ports: [{port: 9000}]", day=3),
        *service("db", "b", "10.96.0.1", "ports: [{name: tcp, port: 9000}, {name: dns, port: 53, protocol: UDP}]", day=3),
    ),
    one_of(
        *service("head", "a", "None", "ports: [{name: tcp, port: 9000}]", "ports: [{name: http, port: 80, targetPort: 8080}]", "publishNotReadyAddresses: true, " + HTTP),
        make("Service", "head", "{clusterIP: 10.96.0.4, clusterIPs: [10.96.0.4, 'fd00:96::4'], ipFamilyPolicy: PreferDualStack, selector: {app: web}, ports: [{name: http, port: 80}]}"),
    ),
    one_of(
        make("Service", "alias", "{type: ExternalName, externalName: api.b.svc.cluster.local, ports: [{name: http, port: 80}]}", "a"),
        make("Service", "alias", "{type: ExternalName, externalName: web.a.svc.cluster.local}", "a"),
        make("Service", "alias", "{clusterIP: 10.96.0.5, clusterIPs: [10.96.0.5], selector: {app: api}, ports: [{name: http, port: 80}]}", "a"),
    ),
    one_of(
        make("Service", "eastwest", "{clusterIP: 10.96.0.9, externalIPs: [9.9.9.9], ports: [{name: tls, port: 15443}]}", "istio-system", labels="{topology.istio.io/network: net2}"),
        make("Service", "eastwest", "{clusterIP: 10.96.0.9, externalIPs: [9.9.9.9], ports: [{name: tls, port: 15443}]}", "istio-system", labels="{topology.istio.io/network: net1}"),
        make("Service", "eastwest", "{type: LoadBalancer, clusterIP: 10.96.0.9, ports: [{name: tls, port: 15443}]}", "istio-system", labels="{topology.istio.io/network: net2}", status={"loadBalancer": {"ingress": [{"ip": "9.9.9.7"}]}}),
        make("Service", "eastwest", "{clusterIP: 10.96.0.9, externalIPs: [9.9.9.6], ports: [{name: tls, port: 15443}]}", "istio-system"),
        make("Service", "eastwest", "{type: NodePort, clusterIP: 10.96.0.9, ports: [{name: tls, port: 15443, nodePort: 31443}]}", "istio-system", labels="{topology.istio.io/network: net2}", annotations="{traffic.istio.io/nodeSelector: '{}'}"),
    ),
    one_of(
        *(
            make("Service", "nodes", "{type: NodePort, clusterIP: 10.96.0.8, ports: [{name: tls, port: 15443, nodePort: 31443}]}", "istio-system", labels="{topology.istio.io/network: net2}", annotations=f"{{traffic.istio.io/nodeSelector: '{selector}'}}")
            for selector in ("{}", '{"topology.kubernetes.io/region": "r1"}')
        )
    ),
    one_of(make("Service", "listed", "{clusterIP: 10.96.0.11, clusterIPs: [10.96.0.11], ports: [{name: http, port: 80}]}", "c")),
    one_of(*(endpoint_slice("listed", at("10.1.0.8", "stray-0", namespace="c"), namespace="c", ports=f"[{{name: http, port: {port}}}]") for port in (8080, 8081))),
    slices("web", "a", WEB_AT),
    slices("api", "b", API_AT),
    slices("db", "b", (at("10.1.0.3", "none-0", namespace="b"),)),
    slices("head", "a", (at("10.1.0.4", "dual-0"), at("10.1.0.1", "web-0"))),
    one_of(
        endpoint_slice("head", at("10.1.0.1", "web-0"), ports="[{name: http, port: 8080}]", name="head-1"),
        endpoint_slice("web", at("10.1.0.5", "six-0"), ports=TWO_PORTS, name="head-1"),
    ),
    pods("web-0", "a", "10.1.0.1", f"{{app: web, version: v1, {MESH_LABEL}}}", f"{{app: web, version: v2, {MESH_LABEL}, topology.istio.io/network: net2}}", "{app: nobody}"),
    pods("api-0", "b", "10.1.0.2", f"{{app: api, {MESH_LABEL}}}", "{app: api, version: v2}", f"{{app: db, {MESH_LABEL}}}"),
    pods("none-0", "b", "10.1.0.3", f"{{app: db, {MESH_LABEL}}}", "{app: api, istio.io/draining: 'true'}"),
    pods("dual-0", "a", "10.1.0.4", f"{{app: head, {MESH_LABEL}}}", f"{{app: web, {MESH_LABEL}}}"),
    pods("ingress-0", "edge", "10.1.0.9", "{istio: ingress}", "{istio: egress}"),
    pods("lost-0", "a", "10.7.0.1", f"{{app: web, {MESH_LABEL}}}"),
    pods("stray-0", "c", "10.1.0.8", "{app: far, service.istio.io/canonical-name: far}", "{app: web, topology.istio.io/network: net2}"),
    one_of(make("Node", "n1", labels="{topology.kubernetes.io/region: r1}"), make("Node", "n1", labels="{topology.kubernetes.io/region: r2, topology.kubernetes.io/zone: z2}")),
    one_of(
        make("Node", "n2", labels="{topology.kubernetes.io/region: r1, topology.kubernetes.io/zone: z1}", status={"addresses": [{"type": "ExternalIP", "address": "9.9.8.1"}]}),
        make("Node", "n2", labels="{topology.kubernetes.io/region: r2}", status={"addresses": [{"type": "ExternalIP", "address": "9.9.8.2"}]}),
    ),
    *(
        one_of(
            make("Namespace", name, labels="{istio-injection: enabled}"),
            make("Namespace", name, annotations="{networking.istio.io/exportTo: '.'}"),
            make("Namespace", name, labels="{topology.istio.io/network: net1}"),
            make("Namespace", name, labels="{istio-injection: enabled}", annotations="{networking.istio.io/traffic-distribution: PreferClose}"),
        )
        for name in ("a", "b", "istio-system")
    ),
]

WEST_KUBERNETES = [
    slot._replace(name=f"{slot.name} {WEST}", cluster=WEST)
    for slot in (
        one_of(*service("web", "a", "10.97.0.1", BOTH, HTTP, "ports: [{name: tcp, port: 80, targetPort: 9000}]"), *service("web", "a", "None", HTTP, day=3)),
        one_of(*service("west", "b", "10.97.0.3", HTTP, "ports: [{name: tcp, port: 9000}]", day=4)),
        slices("web", "a", (at("10.2.0.1", "web-0"), at("10.2.0.9"))),
        pods("web-0", "a", "10.2.0.1", f"{{app: web, version: v2, {MESH_LABEL}}}", f"{{app: web, {MESH_LABEL}, topology.istio.io/network: net2}}"),
        one_of(make("Node", "n1", labels="{topology.kubernetes.io/region: r3}"), make("Node", "n1", labels="{topology.kubernetes.io/region: r1}")),
        one_of(make("Namespace", "istio-system", labels="{topology.istio.io/network: net2}"), make("Namespace", "istio-system")),
    )
]


# -- Istio -----------------------------------------------------------------------------------------------------------------

API = "api.b.svc.cluster.local"
EXTERNAL = "ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}]"
RULES = (
    f"host: {API}, subsets: [{{name: v1, labels: {{version: v1}}}}, {{name: v2, labels: {{version: v2}}, trafficPolicy: {{tls: {{mode: DISABLE}}}}}}]",
    f"host: {API}, trafficPolicy: {{outlierDetection: {{consecutive5xxErrors: 3}}, loadBalancer: {{localityLbSetting: {{distribute: [{{from: r1/*, to: {{r1/*: 80, r2/*: 20}}}}]}}}}}}",
    f"host: {API}, trafficPolicy: {{loadBalancer: {{consistentHash: {{useSourceIp: true}}}}, tls: {{mode: SIMPLE}}}}",
    f"host: {API}, exportTo: ['.'], trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: 7}}}}}}",
    f"host: {API}, workloadSelector: {{matchLabels: {{app: web}}}}, trafficPolicy: {{loadBalancer: {{simple: RANDOM}}}}",
    f"host: {API}, trafficPolicy: {{tunnel: {{protocol: POST, targetHost: t.example.com, targetPort: 443}}}}",
    f"host: {API}, trafficPolicy: {{outlierDetection: {{minHealthPercent: 10}}, loadBalancer: {{localityLbSetting: {{failoverPriority: [app, topology.istio.io/network]}}}}}}",
    f"host: {API}, workloadSelector: {{matchLabels: {{version: v1}}}}, trafficPolicy: {{loadBalancer: {{simple: ROUND_ROBIN}}}}",
    f"host: {API}, trafficPolicy: {{outlierDetection: {{consecutive5xxErrors: 4}}, loadBalancer: {{localityLbSetting: {{failoverPriority: [version]}}}}}}",
    "host: x.example.com, trafficPolicy: {tls: {mode: SIMPLE}, loadBalancer: {simple: LEAST_REQUEST}}",
)
WILDCARDS = (
    "host: '*.b.svc.cluster.local', trafficPolicy: {connectionPool: {tcp: {maxConnections: 9}}}",
    "host: '*.svc.cluster.local', trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: h}}}",
    "host: '*.b.svc.cluster.local', trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: h}}}",
    "host: '*.example.com', trafficPolicy: {tls: {mode: SIMPLE}}",
    "host: '*.example.com', trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: h}}}",
    "host: '*.b.svc.cluster.local', trafficPolicy: {outlierDetection: {consecutive5xxErrors: 2}, loadBalancer: {localityLbSetting: {failover: [{from: r1, to: r2}]}}}",
)
MATCHED = "match: [{uri: {prefix: /x}, sourceLabels: {app: web}}]"
KEY_SET = JwksKey("", "https://issuer.example.com/keys")
EGRESS = (
    "egress: [{hosts: ['./*', 'b/*']}]",
    "egress: [{hosts: ['*/*']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}",
    "egress: [{hosts: ['./*']}], workloadSelector: {labels: {app: web}}",
    "egress: [{port: {number: 9000, protocol: TCP, name: t}, bind: 127.0.0.1, captureMode: NONE, hosts: ['*/*']}, {hosts: ['./*']}]",
    "egress: [{port: {number: 80, protocol: HTTP, name: h}, hosts: ['b/*']}, {hosts: ['*/x.example.com', '~/*']}]",
    "ingress: [{port: {number: 8080, protocol: HTTP, name: h}, defaultEndpoint: '127.0.0.1:7001'}], egress: [{hosts: ['*/*']}]",
    f"egress: [{{hosts: ['*/*']}}], outboundTrafficPolicy: {{mode: ALLOW_ANY, egressProxy: {{host: {API}, port: {{number: 80}}}}}}",
    "egress: [{hosts: ['*/*']}], inboundConnectionPool: {http: {http1MaxPendingRequests: 3}}",
    "egress: [{hosts: ['*/*']}], workloadSelector: {labels: {version: v1}}",
)
ISTIO = [
    each("DestinationRule", "api", "b", *RULES),
    each("DestinationRule", "api", "a", *RULES, day=2),
    each("DestinationRule", "later", "b", *RULES, day=4),
    each("DestinationRule", "root", "istio-system", *RULES, *WILDCARDS),
    each("DestinationRule", "wide", "a", *WILDCARDS, day=6),
    each("DestinationRule", "head", "a", "host: head, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: h}}}", "host: web, subsets: [{name: v2, labels: {version: v2}}]"),
    each(
        "VirtualService", "api", "b",
        f"hosts: [api], http: [{{{to('api', 'v1')}}}]",
        f"hosts: [{API}], http: [{{{MATCHED}, {to('api')}}}, {{{to('web.a.svc.cluster.local')}}}]",
        "hosts: [api], exportTo: ['.'], http: [{redirect: {uri: /y}}]",
        f"hosts: [api], tcp: [{{match: [{{port: 9000}}], {to('db')}}}]",
        f"hosts: [api], http: [{{{MATCHED.replace('web', 'api')}, timeout: 2s, {to('api', 'v2')}}}]",
    ),
    each("VirtualService", "api", "a", f"hosts: [{API}], http: [{{timeout: 1s, {to('web')}}}]", f"hosts: [web], http: [{{{to('head')}}}]", f"hosts: [web, alias], http: [{{{to('alias')}}}]", day=2),
    each("VirtualService", "wild", "a", f"hosts: ['*.example.com'], http: [{{{to('web')}}}]", f"hosts: ['*.b.svc.cluster.local'], http: [{{{to('db.b.svc.cluster.local')}}}]", f"hosts: ['*.example.com'], tls: [{{match: [{{sniHosts: ['*.example.com']}}], {to('web')}}}]", day=7),
    each(
        "VirtualService", "l4", "b",
        f"hosts: [db], tcp: [{{match: [{{sourceLabels: {{app: web}}}}], {to('api')}}}, {{{to('db')}}}]",
        f"hosts: [x.example.com], tls: [{{match: [{{sniHosts: [x.example.com], port: 443}}], {to('y.example.com')}}}]",
        f"hosts: [db], tcp: [{{match: [{{destinationSubnets: [10.96.0.0/24]}}], {to('api')}}}]",
        day=4,
    ),
    each("VirtualService", "only", "c", f"hosts: ['*.example.com'], gateways: [edge/gw], http: [{{{to('db.b.svc.cluster.local')}}}]", f"hosts: [x.example.com], gateways: [edge/gw, mesh], http: [{{{to(API)}}}]"),
    each("VirtualService", "root", "a", "hosts: [x.example.com], http: [{match: [{uri: {prefix: /d}}], delegate: {name: leaf, namespace: b}}]", "hosts: [web], http: [{delegate: {name: leaf, namespace: b}}]", day=7),
    each("VirtualService", "leaf", "b", f"http: [{{{to('api')}}}]", "http: [{directResponse: {status: 418}}]", f"http: [{{match: [{{sourceLabels: {{version: v1}}}}], {to('db')}}}]", "exportTo: ['.'], http: [{redirect: {uri: /z}}]", day=8),
    each(
        "VirtualService", "in", "a",
        f"hosts: [x.example.com], gateways: [edge/gw], http: [{{{to('web')}}}]",
        f"hosts: [x.example.com], gateways: [edge/gw, mesh], http: [{{timeout: 1s, {to(API)}}}]",
        f"hosts: ['*.example.com'], gateways: [own, edge/gw], http: [{{{to('web', 'v2')}}}]",
        f"hosts: [x.example.com], gateways: [edge/gw], tls: [{{match: [{{sniHosts: [x.example.com], port: 443}}], {to(API)}}}]",
        f"hosts: ['*'], gateways: [edge/gw], tcp: [{{match: [{{port: 9000}}], {to('db.b.svc.cluster.local')}}}]",
        f"hosts: ['*'], gateways: [edge/gw], http: [{{mirror: {{host: {API}}}, {to('web')}}}]",
    ),
    each(
        "ServiceEntry", "ext", "c",
        f"hosts: [x.example.com], location: MESH_EXTERNAL, resolution: DNS, {EXTERNAL}",
        f"hosts: [x.example.com, y.example.com], location: MESH_EXTERNAL, resolution: STATIC, addresses: [10.96.0.77], {EXTERNAL}, endpoints: [{{address: 10.9.9.9, locality: r2/z2}}]",
        f"hosts: ['*.example.com'], resolution: NONE, {EXTERNAL}",
        f"hosts: [x.example.com], exportTo: ['.'], resolution: DNS, {EXTERNAL}",
        f"hosts: ['*.example.com'], resolution: DYNAMIC_DNS, {EXTERNAL}",
    ),
    each("ServiceEntry", "more", "b", f"hosts: [y.example.com], resolution: DNS, {EXTERNAL}, endpoints: [{{address: e.example.com}}]", f"hosts: [x.example.com], resolution: STATIC, {EXTERNAL}, endpoints: [{{address: 10.9.9.8, network: net2}}]", f"hosts: [{API}], resolution: STATIC, location: MESH_INTERNAL, {EXTERNAL}, endpoints: [{{address: 10.9.9.7}}]", day=3),
    each(
        "ServiceEntry", "vm", "a",
        "hosts: [vm.example.com], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: vm}}",
        "hosts: [vm.example.com], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], workloadSelector: {labels: {app: web}}",
        "hosts: [vm.example.com], resolution: STATIC, ports: [{number: 9000, name: tcp, protocol: TCP}], endpoints: [{address: 10.9.0.1}, {address: 10.1.0.1, labels: {app: vm}}]",
        "hosts: [vm.example.com], resolution: STATIC, ports: [{number: 9000, name: tcp, protocol: TCP}], endpoints: [{address: 10.9.0.1, ports: {tcp: 9001}}, {address: 10.1.0.1}]",
        "hosts: [vm.example.com], exportTo: ['.'], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.9.0.2, weight: 3}]",
    ),
    each(
        "ServiceEntry", "vm-too", "a",
        "hosts: [vm.example.com], resolution: STATIC, ports: [{number: 9000, name: tcp, protocol: TCP}], endpoints: [{address: 10.9.0.7}]",
        "hosts: [vm.example.com], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: web}}",
        day=5,
    ),
    each("ServiceEntry", "far", "c", "hosts: [far.example.com], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: far}}"),
    each("WorkloadEntry", "vm", "a", "address: 10.9.0.1, labels: {app: vm}", "address: 10.9.0.2, labels: {app: vm}, weight: 5, network: net2", "address: 10.9.0.1, labels: {app: web}, serviceAccount: sa, locality: r1/z1"),
    each("WorkloadEntry", "extra", "b", "address: 10.9.0.3, labels: {app: api}", "address: 10.9.0.3, labels: {app: db, version: v1}, ports: {http: 8081}"),
    each("WorkloadEntry", "api", "b", "address: 10.1.0.2, labels: {app: db}"),
    one_of(*(make("ProxyConfig", "p", spec, "a") | {"apiVersion": "networking.istio.io/v1beta1"} for spec in ("{concurrency: 1}", "{concurrency: 2}"))),
    each("WorkloadGroup", "vm", "a", "template: {serviceAccount: one}", "metadata: {labels: {app: vm}}, template: {serviceAccount: two}"),
    each("Sidecar", "default", "a", *EGRESS),
    each("Sidecar", "web", "a", *EGRESS, day=2),
    each("Sidecar", "default", "b", *EGRESS),
    *(
        each("Sidecar", name, "c", *specs, day=day)._replace(empty=0.2)
        for day, (name, specs) in enumerate((
            ("all", ("egress: [{hosts: ['*/*']}], inboundConnectionPool: {http: {http1MaxPendingRequests: 5}}",)),
            ("some", (
                "egress: [{hosts: ['*/x.example.com', '*/y.example.com']}], workloadSelector: {labels: {app: far}}",
                "egress: [{hosts: ['*/x.example.com', '*/y.example.com']}]",
            )),
        ), 1)
    ),
    each("Sidecar", "default", "istio-system", *(e for e in EGRESS if "workloadSelector" not in e), day=9),
    each(
        "Gateway", "gw", "edge",
        "selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]",
        "selector: {istio: ingress}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [x.example.com], tls: {mode: SIMPLE, credentialName: c}}]",
        "selector: {istio: ingress}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [x.example.com], tls: {mode: SIMPLE, credentialName: 'kubernetes-gateway://edge/c'}}]",
        "selector: {istio: egress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [x.example.com]}]",
        "selector: {istio: ingress}, servers: [{port: {number: 15443, name: tls, protocol: TLS}, hosts: ['*.local'], tls: {mode: AUTO_PASSTHROUGH}}]",
        "selector: {istio: ingress}, servers: [{port: {number: 443, name: tls, protocol: TLS}, hosts: ['*'], tls: {mode: PASSTHROUGH}}, {port: {number: 9000, name: tcp, protocol: TCP}, hosts: ['*']}]",
        "selector: {istio: ingress}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: ISTIO_MUTUAL}}, {port: {number: 80, name: http, protocol: HTTP}, hosts: ['*'], tls: {httpsRedirect: true}}]",
    ),
    each("Gateway", "own", "a", "selector: {istio: egress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]", "servers: [{port: {number: 8088, name: http, protocol: HTTP}, hosts: ['a/x.example.com']}]", day=2),
    *(
        each(
            "PeerAuthentication", "p", namespace,
            *(f"mtls: {{mode: {mode}}}" for mode in ("STRICT", "PERMISSIVE", "DISABLE")),
            "selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: DISABLE}}",
            "selector: {matchLabels: {app: api}}, mtls: {mode: DISABLE}",
            day=day,
        )
        for day, namespace in enumerate(("a", "b", "istio-system"), 1)
    ),
    *(
        each(
            "RequestAuthentication", "jwt", namespace,
            "jwtRules: [{issuer: one, jwks: '{\"keys\": []}'}]",
            "selector: {matchLabels: {app: web}}, jwtRules: [{issuer: two, jwks: '{\"keys\": []}', audiences: [x]}]",
            "selector: {matchLabels: {istio: ingress}}, jwtRules: [{issuer: three, jwks: '{\"keys\": []}', forwardOriginalToken: true}]",
            f"jwtRules: [{{issuer: four, jwksUri: '{KEY_SET.uri}'}}]",
        )
        for namespace in ("a", "edge", "istio-system")
    ),
    *(
        each(
            "AuthorizationPolicy", "who", namespace,
            "rules: [{from: [{source: {principals: [cluster.local/ns/a/sa/default]}}], to: [{operation: {paths: ['/x/{*}']}}]}]",
            "action: DENY, rules: [{to: [{operation: {ports: ['9000']}}]}]",
            "selector: {matchLabels: {app: web}}, action: AUDIT, rules: [{when: [{key: 'request.headers[h]', values: [x]}]}]",
            "selector: {matchLabels: {istio: ingress}}, action: CUSTOM, provider: {name: judge}, rules: [{}]",
            "",
            day=day,
        )
        for day, namespace in enumerate(("a", "edge", "istio-system"), 1)
    ),
    *(
        each(
            "WasmPlugin", "w", namespace,
            "url: 'oci://r.example.com/w:1', phase: AUTHN, pluginConfig: {a: 1}",
            "url: 'oci://r.example.com/w:1', imagePullSecret: c, failStrategy: FAIL_OPEN, match: [{mode: SERVER, ports: [{number: 8080}, {number: 80}]}]",
            "url: 'file:///w.wasm', type: NETWORK, phase: AUTHZ, priority: 3, selector: {matchLabels: {app: web}}",
            "url: 'file:///w.wasm', type: NETWORK, match: [{mode: CLIENT}, {mode: SERVER, ports: [{number: 9000}]}]",
            "url: 'https://w.example.com', selector: {matchLabels: {istio: ingress}}, match: [{ports: [{number: 80}]}]",
            day=day,
        )
        for day, namespace in enumerate(("a", "edge", "istio-system"), 1)
    ),
    *(
        each(
            "Telemetry", "what", namespace,
            "accessLogging: [{providers: [{name: als}, {name: envoy}]}], tracing: [{providers: [{name: z}], randomSamplingPercentage: 5}]",
            "metrics: [{providers: [{name: prometheus}], overrides: [{match: {metric: REQUEST_COUNT, mode: CLIENT}, tagOverrides: {a: {value: request.host}}}]}]",
            "selector: {matchLabels: {app: web}}, accessLogging: [{match: {mode: SERVER}, disabled: true}, {providers: [{name: als}], filter: {expression: response.code > 4}}]",
            "selector: {matchLabels: {istio: ingress}}, tracing: [{customTags: {t: {header: {name: h}}}, enableIstioTags: false, useRequestIdForTraceSampling: false}]",
            "tracing: [{match: {mode: CLIENT}, disableSpanReporting: true}], metrics: [{overrides: [{disabled: true, match: {mode: SERVER}}], reportingInterval: 3s}]",
            day=day,
        )
        for day, namespace in enumerate(("a", "edge", "istio-system"), 1)
    ),
    *(
        each(
            "TrafficExtension", "t", namespace,
            "lua: {inlineCode: 'x = 1'}, phase: STATS",
            "lua: {inlineCode: 'x = 2'}, match: [{mode: CLIENT, ports: [{number: 80}]}], selector: {matchLabels: {app: web}}",
            "wasm: {url: r.example.com/t, imagePullSecret: c}, priority: 7",
        )
        for namespace in ("a", "istio-system")
    ),
    each("Telemetry", "older", "a", "metrics: [{providers: [{name: prometheus}]}]", "selector: {matchLabels: {app: web}}, tracing: [{providers: [{name: z}]}]"),
    one_of(*(make("AuthorizationPolicy", "tried", "{rules: [{from: [{source: {namespaces: [b]}}]}]}", "a", annotations=f"{{istio.io/dry-run: '{dry}'}}") for dry in ("true", "false"))),
]


# -- credentials -----------------------------------------------------------------------------------------------------------

AUTHORITY, PARTNER = Authority(), Authority("partner")
SERVED, RENEWED = AUTHORITY.issue("x.example.com"), AUTHORITY.issue("x.example.com")
_SERVICES = tuple((f"{name}.{namespace}.svc.cluster.local", port) for name, namespace, port in (("web", "a", 80), ("api", "b", 80), ("head", "a", 80)))
_CLUSTERS = tuple(f"outbound|{port}|{subset}|{host}" for host, port in _SERVICES for subset in ("", "v1"))
ASKED = {
    LISTENER: frozenset((*(f"{host}:{port}" for host, port in _SERVICES), "web:80", "xds.istio.io/grpc/lds/inbound/10.1.0.12:8080")),
    CLUSTER: frozenset(_CLUSTERS),
    ENDPOINT: frozenset(_CLUSTERS),
    ROUTE: frozenset(_CLUSTERS),
    SECRET: frozenset((
        "kubernetes://c", "kubernetes://c-cacert", "kubernetes://edge/c", "kubernetes-gateway://edge/c", "configmap://edge/c",
        "configmap://istio-system/c-cacert",
    )),
    EXTENSION: frozenset((
        "slow",
        "absent",
        *(
            f"extensions.istio.io/trafficextension/{name}"
            for namespace in ("a", "edge", "istio-system")
            for name in (f"{namespace}.w~istio-translated-wasmplugin", f"{namespace}.t")
        ),
    )),
}  # fmt: skip
"""What every proxy asks for by name; where it gets everything of a type, that does not matter."""


def secret(namespace: str) -> Slot:
    return one_of(
        tls_secret("c", SERVED, namespace),
        tls_secret("c", RENEWED, namespace, ca_crt=AUTHORITY.pem, ca_crl=AUTHORITY.crl()),
        data_secret("c", {"cert": SERVED.chain, "key": SERVED.private_key, "cacert": PARTNER.pem}, namespace),
        data_secret("c", {"cert": SERVED.chain, "key": RENEWED.private_key}, namespace),
    )


def access(*account: str) -> Slot:
    row = "secret_access", AccountKey(*account)
    return Slot(f"SecretAccess {'/'.join(account)}", "rows", ({row: True}, {row: False}), 0.4)


def roots(source: str, *authorities: Authority) -> Slot:
    """The roots of one source: one at a time, and all of them."""
    told = [tuple(one.pem.decode() for one in some) for some in (*((one,) for one in authorities), authorities)]
    return Slot(f"AuthorityRoots {source}", "rows", tuple({("authority_roots", source): pems} for pems in told), 0.4)


KEY_SETS = tuple({("jwks", KEY_SET): f'{{"keys": [{{"kty": "RSA", "kid": "{kid}", "n": "AQAB", "e": "AQAB"}}]}}'} for kid in ("one", "two"))
CREDENTIALS: list[Slot] = [
    secret("edge"),
    secret("a"),
    secret("edge")._replace(cluster=WEST, name="Secret edge/c west"),
    one_of(*(data_secret("c-cacert", {"ca.crt": pem}) for pem in (AUTHORITY.pem, b"none"))),
    *(
        one_of(*(config_map("c", {key: root.pem.decode()}, namespace) for key, root in (("cacert", AUTHORITY), ("ca.crt", PARTNER))))
        for namespace in ("edge", "istio-system")
    ),
    access(*EVERY_ACCOUNT),
    access("Kubernetes", "edge", "default"),
    access("Kubernetes", "a", "default"),
    access(WEST, "edge", "default"),
    roots("own", AUTHORITY, PARTNER),
    roots("external", PARTNER, Authority("external")),
]
def filtered(*patches: str, more: str = "") -> str:
    """The spec of an EnvoyFilter."""
    return f"{{{more}configPatches: [{', '.join(patches)}]}}"


def patched(apply_to: str, operation: str, value: str = "", match: str = "", context: str = "ANY") -> str:
    """A patch; `match` is what stands beside its context."""
    given = f", value: {{{value}}}" if value else ""
    return f"{{applyTo: {apply_to}, match: {{context: {context}{', ' + match if match else ''}}}, patch: {{operation: {operation}{given}}}}}"


ROUTED = "routeConfiguration: {portNumber: 80}"
DIRECT = "match: {prefix: /added}, direct_response: {status: 204}"
ON_MANAGER = "listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}"
CORS = "name: added.cors, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}"
WEATHER = "name: weather, type: STATIC, connect_timeout: 1s, load_assignment: {cluster_name: weather}"
DELAY = "typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, max_active_faults: 3}"
FILTERS: list[Slot] = [
    one_of(*(make("EnvoyFilter", "all", spec, "istio-system") for spec in (
        filtered(patched("CLUSTER", "MERGE", "connect_timeout: 3s"), patched("ROUTE_CONFIGURATION", "MERGE", "request_headers_to_remove: [x-old]")),
        filtered(patched("HTTP_FILTER", "INSERT_FIRST", CORS, ON_MANAGER), more="priority: 5, "),
        filtered(patched("LISTENER", "MERGE", "tcp_backlog_size: 7", "proxy: {metadata: {HTTP10: '1'}}"), patched("CLUSTER", "ADD", WEATHER)),
        filtered(patched("EXTENSION_CONFIG", "ADD", f"name: slow, {DELAY}"), more="targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: g}], "),
    ))),
    one_of(*(make("EnvoyFilter", "own", spec, "a") for spec in (
        filtered(patched("CLUSTER", "MERGE", "lb_policy: RANDOM", "cluster: {portNumber: 80}"), patched("LISTENER", "REMOVE", "", "listener: {portNumber: 90}")),
        filtered(patched("VIRTUAL_HOST", "ADD", f"name: added, domains: [added.x], routes: [{{{DIRECT}}}]", ROUTED), more="workloadSelector: {labels: {app: web}}, "),
        filtered(patched("HTTP_ROUTE", "INSERT_FIRST", DIRECT, ROUTED), patched("HTTP_ROUTE", "ADD", DIRECT, "", "SIDECAR_INBOUND")),
        filtered(patched("EXTENSION_CONFIG", "ADD", f"name: slow, {DELAY}"), patched("FILTER_CHAIN", "MERGE", "transport_socket_connect_timeout: 9s")),
        filtered(patched("CLUSTER", "MERGE", "nobody_knows: 1"), patched("CLUSTER", "REMOVE", "", "cluster: {service: x.example.com}"), more="priority: -1, "),
    ))),
    one_of(*(make("EnvoyFilter", "edge", spec, "edge") for spec in (
        filtered(patched("HTTP_ROUTE", "MERGE", "route: {timeout: 13s}", "routeConfiguration: {vhost: {route: {action: ROUTE}}}", "GATEWAY")),
        filtered(patched("VIRTUAL_HOST", "MERGE_AND_REPLACE_LIST", "domains: [only.example.com]", ROUTED, "GATEWAY")),
    ))),
]
KEY_SET_SLOT = Slot("JsonWebKeySet", "rows", KEY_SETS, 0.4)
HOSTS = tuple({("resolved_hosts", "gw.example.com"): addresses} for addresses in (("9.9.9.3",), ("9.9.9.4", "fd00:9::4")))
HOST_SLOT = Slot("ResolvedHost", "rows", HOSTS, 0.2)
SLOTS: tuple[Slot, ...] = (MESH, NETWORKS, *PROXIES, *KUBERNETES, *WEST_KUBERNETES, *ISTIO, *GATEWAYS, *CREDENTIALS, *FILTERS, KEY_SET_SLOT, HOST_SLOT)
