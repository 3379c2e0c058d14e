"""The short names of xDS types that people and metrics use."""
from __future__ import annotations

PREFIX = "type.googleapis.com/"

BY_SHORT_NAME = {
    "cds": PREFIX + "envoy.config.cluster.v3.Cluster",
    "eds": PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "lds": PREFIX + "envoy.config.listener.v3.Listener",
    "rds": PREFIX + "envoy.config.route.v3.RouteConfiguration",
    "sds": PREFIX + "envoy.extensions.transport_sockets.tls.v3.Secret",
    "ecds": PREFIX + "envoy.config.core.v3.TypedExtensionConfig",
    "nds": PREFIX + "istio.networking.nds.v1.NameTable",
    "pcds": PREFIX + "istio.mesh.v1alpha1.ProxyConfig",
    "wds": PREFIX + "istio.workload.Address",
    "wads": PREFIX + "istio.security.Authorization",
    "bds": PREFIX + "envoy.config.bootstrap.v3.Bootstrap",
}
_SHORT = {url: name for name, url in BY_SHORT_NAME.items()} | {PREFIX + "istio.workload.Workload": "wds"}


def short_name(type_url: str) -> str:
    """"cds" of the type URL of Cluster and so on; a type without a short name stays as it is."""
    return _SHORT.get(type_url, type_url)
