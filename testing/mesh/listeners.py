"""One proxy's listeners as proto JSON, in a small mesh, and helpers to inspect them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import any_pb2, json_format

from pilot.lib.xds_types import LISTENER
from pilot.mesh.model.proxy import Proxy
from testing.mesh.objects import make, pod, world
from testing.mesh.world import proxy

Plain = dict[str, Any]
HCM = "envoy.filters.network.http_connection_manager"
TCP = "envoy.filters.network.tcp_proxy"
WEB = proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web", "service.istio.io/canonical-name": "web"})
WEB_POD = pod("web-0", "10.1.0.1", labels="{app: web}")


def service(name: str, ports: str, ip: str = "10.96.0.1", namespace: str = "a", **more: Any) -> Plain:
    """Return a Service that selects `app: NAME`. `ports` is YAML."""
    return make(
        "Service",
        name,
        f"{{clusterIP: {ip}, clusterIPs: [{ip}], selector: {{app: {name}}}, ports: {ports}}}",
        namespace,
        **more,
    )


def entry(spec: str, name: str = "entry", namespace: str = "a", **more: Any) -> Plain:
    """Return a ServiceEntry."""
    return make("ServiceEntry", name, f"{{{spec}}}", namespace, **more)


def listeners(*objects: Mapping[str, Any], proxy: Proxy = WEB, mesh: str = "", **environ: str) -> dict[str, Plain]:
    """Return every listener of a proxy, by name."""
    mesh_world = world(*objects, mesh_config=mesh, **environ)
    resources = mesh_world.resources(mesh_world.connect(proxy))[LISTENER]
    assert not mesh_world.failures
    return {name: json_format.MessageToDict(any_pb2.Any.FromString(r.any)) for name, r in resources.items()}


def chains(listener: Plain) -> list[Plain]:
    """Return the filter chains, the default chain last."""
    return [
        *listener.get("filterChains", ()),
        *([listener["defaultFilterChain"]] if "defaultFilterChain" in listener else []),
    ]


def last_filter(chain: Plain) -> Plain:
    """Return the configuration of the last filter of a chain."""
    config: Plain = chain["filters"][-1]["typedConfig"]
    return config


def destinations(listener: Plain) -> list[str]:
    """Return the destination of each chain: a cluster, weighted clusters, or HTTP routes."""
    return [_destination(last_filter(c)) for c in chains(listener)]


def _destination(config: Plain) -> str:
    if "rds" in config or "routeConfig" in config:
        return f"routes {config['rds']['routeConfigName'] if 'rds' in config else config['routeConfig']['name']}"
    if "weightedClusters" in config:
        return " ".join(f"{c['name']}={c['weight']}" for c in config["weightedClusters"]["clusters"])
    return str(config["cluster"])


def conditions(listener: Plain) -> list[Plain]:
    """Return the match of each chain, the default chain's last."""
    return [c.get("filterChainMatch", {}) for c in chains(listener)]


def http(listener: Plain) -> Plain:
    """Return the first HTTP connection manager of a listener."""
    return next(last_filter(c) for c in chains(listener) if c["filters"][-1]["name"] == HCM)


def http_filters(listener: Plain) -> list[str]:
    return [f["name"] for f in http(listener)["httpFilters"]]


def network_filters(chain: Plain) -> list[str]:
    return [f["name"] for f in chain["filters"]]


def inspectors(listener: Plain) -> list[str]:
    """Return the listener filters, by the last part of their names."""
    return [f["name"].rpartition(".")[2] for f in listener.get("listenerFilters", ())]
