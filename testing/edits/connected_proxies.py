"""Proxies of all types for random edits of a mesh: each connects, reconnects with other metadata, and disconnects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import Proxy
from testing.edits.cluster_objects import WEST
from testing.edits.slot import Slot
from testing.mesh.world import proxy

STOCK = frozenset(("envoy.filters.http.router", "envoy.filters.network.tcp_proxy"))
FIRST_ZONE, SECOND_ZONE = Locality("r1", "z1"), Locality("r2", "z2")


def proxy_slot(initial: Proxy, *changes: Mapping[str, Any]) -> Slot:
    """Return a slot of a proxy: unchanged, and with each change of its fields (`metadata` is merged)."""

    def apply(change: Mapping[str, Any]) -> Proxy:
        fields = {**change, "metadata": {**initial.metadata, **change.get("metadata", {})}}
        return msgspec.structs.replace(initial, **fields)

    return Slot(f"Proxy {initial.id} {initial.cluster_id}", "proxy", (initial, *map(apply, changes)), 0.05)


def authenticated(initial: Proxy) -> Proxy:
    """Return the proxy with the authenticated identity of its namespace's default account."""
    return msgspec.structs.replace(initial, identity=f"spiffe://cluster.local/ns/{initial.namespace}/sa/default")


PROXIES = [
    proxy_slot(
        authenticated(
            proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web", "version": "v1"}, NODE_NAME="n1", NETWORK="net1")
        ),
        {"metadata": {"NETWORK": "net2"}, "locality": SECOND_ZONE},
        {"metadata": {"NODE_NAME": "n2"}, "locality": FIRST_ZONE},
        {
            "metadata": {
                "PROXY_CONFIG": {"tracing": {"sampling": 50}, "proxyHeaders": {"preserveHttp1HeaderCase": True}}
            }
        },
    ),
    proxy_slot(
        proxy("sidecar", "api-0", "b", "10.1.0.2", {"app": "api"}, INTERCEPTION_MODE="TPROXY", NODE_NAME="n2"),
        {"metadata": {"INTERCEPTION_MODE": "REDIRECT", "LABELS": {"app": "web"}}},
        {"metadata": {"TLS_CLIENT_CERT_CHAIN": "/c", "TLS_CLIENT_KEY": "/k", "TLS_CLIENT_ROOT_CERT": "/r"}},
    ),
    proxy_slot(
        proxy(
            "sidecar",
            "none-0",
            "b",
            "10.1.0.3",
            {"app": "db"},
            INTERCEPTION_MODE="NONE",
            HTTP_PROXY_PORT="15002",
            IDLE_TIMEOUT="5s",
        ),
        {"metadata": {"HTTP10": "1", "INBOUND_LISTENER_EXACT_BALANCE": "true"}},
    ),
    proxy_slot(
        msgspec.structs.replace(
            proxy("sidecar", "dual-0", "a", "10.1.0.4", {"app": "head"}, DNS_CAPTURE="true", DNS_AUTO_ALLOCATE="true"),
            ips=("10.1.0.4", "fd00::4"),
        ),
        {"metadata": {"DNS_CAPTURE": "false"}},
        {"ips": ("fd00::4", "10.1.0.4")},
    ),
    proxy_slot(proxy("sidecar", "six-0", "a", "fd00::5", {"app": "web"}), {"ips": ("10.1.0.5",)}),
    proxy_slot(
        proxy("sidecar", "vm", "a", "10.9.0.1", {"app": "vm"}),
        {"ips": ("10.9.0.2",)},
        {"metadata": {"LABELS": {"app": "other"}}},
    ),
    proxy_slot(
        proxy("sidecar", "far-0", "c", "10.1.0.7", {"app": "far"}, CLUSTER_ID="other", REQUESTED_NETWORK_VIEW="net2"),
        {"metadata": {"REQUESTED_NETWORK_VIEW": ""}, "locality": SECOND_ZONE},
        {"namespace": "b"},
    ),
    proxy_slot(
        msgspec.structs.replace(proxy("sidecar", "stock-0", "c", "10.1.0.8", {"app": "stock"}), extensions=STOCK),
        {"extensions": None},
        {"metadata": {"credential": "true", "file-credential": "true"}},
    ),
    proxy_slot(
        authenticated(proxy("router", "ingress-0", "edge", "10.1.0.9", {"istio": "ingress"})),
        {"identity": ""},
        {"metadata": {"CLUSTER_ID": WEST}},
        {"metadata": {"LABELS": {"istio": "egress"}}},
        {"metadata": {"NETWORK": "net2", "UNPRIVILEGED_POD": "true"}},
        {"locality": SECOND_ZONE},
    ),
    proxy_slot(
        authenticated(
            proxy("router", "egress-0", "a", "10.1.0.10", {"istio": "egress"}, REQUESTED_NETWORK_VIEW="net1")
        ),
        {"metadata": {"LABELS": {"istio": "ingress"}}},
    ),
    proxy_slot(
        proxy("sidecar", "web-0", "a", "10.2.0.1", {"app": "web"}, CLUSTER_ID=WEST),
        {"locality": SECOND_ZONE},
        {"metadata": {"NETWORK": "net2"}},
    ),
    proxy_slot(
        proxy("sidecar", "grpc-0", "a", "10.1.0.12", {"app": "web"}, GENERATOR="grpc"),
        {"namespace": "b"},
        {"metadata": {"GENERATOR": ""}},
        {"dns_domain": "b.svc.cluster.local"},
    ),
    proxy_slot(proxy("ztunnel", "zt-0", "istio-system", "10.1.0.11"), {"metadata": {"NODE_NAME": "n1"}}),
]
