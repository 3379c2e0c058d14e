"""The proxies that are or were connected, by node id."""

from __future__ import annotations

from pilot.derive import derived
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import Mesh


def connected_proxy(db: Mesh, node_id: str) -> Proxy | None:
    """Returns the proxy of a node id, None where there is none."""
    return db.proxies.get(node_id)


def find_proxy(db: Mesh, node_id: str) -> Proxy:
    """Returns the proxy of a node id, which must be there: raises LookupError where it is not."""
    found = db.proxies.get(node_id)
    if found is None:
        raise LookupError(f"no proxy {node_id}")
    return found


@derived
def every_proxy(db: Mesh) -> tuple[str, ...]:
    """Returns the node ids of all proxies."""
    return db.proxies.all_keys()


@derived
def routers(db: Mesh) -> tuple[str, ...]:
    """Returns the node ids of the routers."""
    return db.proxies.keys("type", NodeType.ROUTER)


def proxy_namespaces(db: Mesh) -> tuple[str, ...]:
    """Returns the namespaces that proxies are in."""
    return db.proxies.buckets("namespace")


@derived
def lacking_builds(db: Mesh) -> tuple[tuple[str, frozenset[str]], ...]:
    """Returns each namespace with what telemetry may need and the build of some proxy there does not have."""
    return db.proxies.buckets("lacks")
