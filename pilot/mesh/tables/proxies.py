"""The proxies that are or were connected, keyed by node ID."""

from __future__ import annotations

from pilot.derive import derived
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import Mesh


def connected_proxy(db: Mesh, node_id: str) -> Proxy | None:
    """Return a proxy, or None if it does not exist."""
    return db.proxies.get(node_id)


def find_proxy(db: Mesh, node_id: str) -> Proxy:
    """Return a proxy. Raise LookupError if it does not exist."""
    proxy = db.proxies.get(node_id)
    if proxy is None:
        raise LookupError(f"no proxy {node_id}")
    return proxy


@derived
def all_proxies(db: Mesh) -> tuple[str, ...]:
    """Return the node IDs of all proxies."""
    return db.proxies.all_keys()


@derived
def routers(db: Mesh) -> tuple[str, ...]:
    """Return the node IDs of all routers."""
    return db.proxies.keys("type", NodeType.ROUTER)


def proxy_namespaces(db: Mesh) -> tuple[str, ...]:
    """Return the namespaces with proxies."""
    return db.proxies.buckets("namespace")


@derived
def missing_features(db: Mesh) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return pairs of a namespace and the telemetry features that the build of a proxy in it lacks."""
    return db.proxies.buckets("lacks")
