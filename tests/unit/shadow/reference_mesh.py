"""A reference in memory: the debug pages of an istiod, filled from a mesh of this control plane."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pilot.debug.pages.ambient import build_page, list_resources
from pilot.debug.pages.config_dump import plain
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.settings.parse import load
from pilot.shadow.cluster_snapshot import ClusterSnapshot, ShadowMesh
from pilot.shadow.derived_resources import derive_resources
from pilot.shadow.reference_pages import ReferencePages
from pilot.shadow.reference_proxies import ReferenceProxy
from testing.mesh.world import parse_objects, proxy

HIDDEN = frozenset({"LINE"})
"""Metadata that the page adsz does not show, as istiod's."""
TYPES = ("cds", "eds", "lds", "rds")
OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: books, namespace: shop}
spec: {clusterIP: 10.0.0.1, selector: {app: books}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: books-1, namespace: shop, labels: {app: books}}
spec: {serviceAccountName: books, containers: [{name: app}]}
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: books-1, namespace: shop, labels: {kubernetes.io/service-name: books}}
addressType: IPv4
endpoints: [{addresses: [10.1.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: books-1, namespace: shop}}]
ports: [{name: http, port: 8080, protocol: TCP}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: books, namespace: shop}
spec: {hosts: [books], http: [{timeout: 5s, route: [{destination: {host: books}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: books, namespace: shop}
spec: {host: books, trafficPolicy: {connectionPool: {tcp: {maxConnections: 10}}}}
"""


def mesh_of(text: str, **environ: str) -> ShadowMesh:
    """Return the mesh of some objects."""
    settings = load([], environ).settings
    return ShadowMesh(ClusterSnapshot(parse_objects(text), None, None), settings)


def connection(name: str, ip: str) -> ReferenceProxy:
    """Return a sidecar that subscribes to the endpoints and routes of OBJECTS."""
    names = {
        "eds": {"outbound|80||books.shop.svc.cluster.local"},
        "rds": {"80"},
    }
    watches = {BY_SHORT_NAME[kind]: frozenset(names.get(kind, ())) for kind in TYPES}
    return ReferenceProxy(f"{name}.shop-1", proxy("sidecar", name, "shop", ip, {"app": name}), watches)


class MemoryPages(ReferencePages):
    """The pages of a reference whose resources are those of a mesh. `change` edits each of them."""

    def __init__(
        self, text: str, proxies: list[ReferenceProxy], change: Any = lambda resource: None, **environ: str
    ) -> None:
        super().__init__("memory")
        self._mesh, self._proxies, self._change = mesh_of(text, **environ), proxies, change
        self._mesh.connect([(one.node_id, one.proxy) for one in proxies])

    async def get(self, page: str, query: Mapping[str, str] | None = None) -> bytes:
        return json.dumps(getattr(self, f"_{page}")(query or {})).encode()

    def _adsz(self, _: Mapping[str, str]) -> Any:
        return {
            "clients": [
                {
                    "connectionId": one.connection_id,
                    "metadata": {
                        **{key: value for key, value in one.proxy.metadata.items() if key not in HIDDEN},
                        "INSTANCE_IPS": ",".join(one.proxy.ips),
                    },
                    "watches": {url: sorted(names) for url, names in one.watches.items()},
                }
                for one in self._proxies
            ]
        }

    def _ambientz(self, _: Mapping[str, str]) -> Any:
        return build_page(list(list_resources(self._mesh.mesh)))

    def _syncz(self, _: Mapping[str, str]) -> Any:
        return [{"proxy": one.proxy.id, "proxy_type": str(one.proxy.type)} for one in self._proxies]

    def _config_dump(self, query: Mapping[str, str]) -> Any:
        one = next(one for one in self._proxies if one.connection_id == query["proxyID"])
        resources = derive_resources(self._mesh.mesh, one)
        shown = [plain(d.resource) for kind in query["types"].split(",") for d in resources[kind].values()]
        for resource in shown:
            self._change(resource)
        return {"configs": shown}
