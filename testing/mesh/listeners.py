"""The listeners of one proxy as proto JSON, of a small mesh, with what tests ask of them."""

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
    """A Service that selects `app: NAME`; `ports` is YAML."""
    return make(
        "Service",
        name,
        f"{{clusterIP: {ip}, clusterIPs: [{ip}], selector: {{app: {name}}}, ports: {ports}}}",
        namespace,
        **more,
    )


def entry(spec: str, name: str = "entry", namespace: str = "a", **more: Any) -> Plain:
    return make("ServiceEntry", name, f"{{{spec}}}", namespace, **more)


def listeners(*objects: Mapping[str, Any], by: Proxy = WEB, mesh: str = "", **environ: str) -> dict[str, Plain]:
    """Every listener of the proxy, by name."""
    made = world(*objects, mesh_config=mesh, **environ)
    found = made.resources(made.connect(by))[LISTENER]
    assert not made.failures
    return {name: json_format.MessageToDict(any_pb2.Any.FromString(r.any)) for name, r in found.items()}


def chains(listener: Plain) -> list[Plain]:
    """Its filter chains, the default one last."""
    return [
        *listener.get("filterChains", ()),
        *([listener["defaultFilterChain"]] if "defaultFilterChain" in listener else []),
    ]


def last(chain: Plain) -> Plain:
    """The configuration of the filter that ends a chain."""
    config: Plain = chain["filters"][-1]["typedConfig"]
    return config


def leads(listener: Plain) -> list[str]:
    """Where each chain leads, in order: a cluster, weighted ones, or the routes of HTTP."""
    return [_leads(last(c)) for c in chains(listener)]


def _leads(config: Plain) -> str:
    if "rds" in config or "routeConfig" in config:
        return f"routes {config['rds']['routeConfigName'] if 'rds' in config else config['routeConfig']['name']}"
    if "weightedClusters" in config:
        return " ".join(f"{c['name']}={c['weight']}" for c in config["weightedClusters"]["clusters"])
    return str(config["cluster"])


def conditions(listener: Plain) -> list[Plain]:
    """The condition of each chain, the default one's last."""
    return [c.get("filterChainMatch", {}) for c in chains(listener)]


def http(listener: Plain) -> Plain:
    """The first HTTP connection manager of a listener."""
    return next(last(c) for c in chains(listener) if c["filters"][-1]["name"] == HCM)


def http_filters(listener: Plain) -> list[str]:
    return [f["name"] for f in http(listener)["httpFilters"]]


def network_filters(chain: Plain) -> list[str]:
    return [f["name"] for f in chain["filters"]]


def inspectors(listener: Plain) -> list[str]:
    """The listener filters, by the last part of their names."""
    return [f["name"].rpartition(".")[2] for f in listener.get("listenerFilters", ())]
