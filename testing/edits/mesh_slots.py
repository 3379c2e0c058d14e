"""Slots for random edits of a whole mesh. Each slot contains one of its variants or nothing.

Objects refer to a few shared names, so that most edits affect some proxy. For a new kind or a new form of an object,
add an entry. The variants of a slot are, depending on its `kind`, objects, mesh configs or mesh networks in YAML,
versions of a proxy that connects and disconnects, or rows that the process itself commits.
"""

from __future__ import annotations

from pilot.lib.xds_types import CLUSTER, ENDPOINT, EXTENSION, LISTENER, ROUTE, SECRET
from testing.edits.ambient_objects import AMBIENT
from testing.edits.cluster_objects import KUBERNETES, WEST_KUBERNETES
from testing.edits.connected_proxies import PROXIES
from testing.edits.credential_objects import CREDENTIALS
from testing.edits.envoy_filter_objects import FILTERS
from testing.edits.gateway_objects import GATEWAYS
from testing.edits.istio_objects import ISTIO, KEY_SET
from testing.edits.slot import Slot

MESH = Slot(
    "MeshConfig",
    "mesh",
    (
        "{rootNamespace: b}",
        "{trustDomain: td1, trustDomainAliases: [td2], outboundTrafficPolicy: {mode: REGISTRY_ONLY}, serviceScopeConfigs: [{scope: GLOBAL}]}",
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
        "{serviceScopeConfigs: [{scope: GLOBAL, servicesSelector: {matchLabels: {scope: global}}}]}",
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
_SERVICES = tuple(
    (f"{name}.{namespace}.svc.cluster.local", port)
    for name, namespace, port in (("web", "a", 80), ("api", "b", 80), ("head", "a", 80))
)
_CLUSTERS = tuple(f"outbound|{port}|{subset}|{host}" for host, port in _SERVICES for subset in ("", "v1"))
SUBSCRIPTIONS = {
    LISTENER: frozenset(
        (*(f"{host}:{port}" for host, port in _SERVICES), "web:80", "xds.istio.io/grpc/lds/inbound/10.1.0.12:8080")
    ),
    CLUSTER: frozenset(_CLUSTERS),
    ENDPOINT: frozenset(_CLUSTERS),
    ROUTE: frozenset(_CLUSTERS),
    SECRET: frozenset(
        (
            "kubernetes://c",
            "kubernetes://c-cacert",
            "kubernetes://edge/c",
            "kubernetes-gateway://edge/c",
            "configmap://edge/c",
            "configmap://istio-system/c-cacert",
        )
    ),
    EXTENSION: frozenset(
        (
            "slow",
            "absent",
            *(
                f"extensions.istio.io/trafficextension/{name}"
                for namespace in ("a", "edge", "istio-system")
                for name in (f"{namespace}.w~istio-translated-wasmplugin", f"{namespace}.t")
            ),
        )
    ),
}
"""Names that every proxy subscribes to. They are ignored for types that it gets by wildcard."""
KEY_SETS = tuple(
    {("JsonWebKeySet", KEY_SET): f'{{"keys": [{{"kty": "RSA", "kid": "{kid}", "n": "AQAB", "e": "AQAB"}}]}}'}
    for kid in ("one", "two")
)
KEY_SET_SLOT = Slot("JsonWebKeySet", "rows", KEY_SETS, 0.4)
HOSTS = tuple({("ResolvedHost", "gw.example.com"): addresses} for addresses in (("9.9.9.3",), ("9.9.9.4", "fd00:9::4")))
HOST_SLOT = Slot("ResolvedHost", "rows", HOSTS, 0.2)
SLOTS: tuple[Slot, ...] = (
    MESH,
    NETWORKS,
    *PROXIES,
    *KUBERNETES,
    *WEST_KUBERNETES,
    *ISTIO,
    *GATEWAYS,
    *CREDENTIALS,
    *FILTERS,
    *AMBIENT,
    KEY_SET_SLOT,
    HOST_SLOT,
)
