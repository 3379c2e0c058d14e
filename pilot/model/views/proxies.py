"""The proxies that are or were connected, by node id."""
from __future__ import annotations

from pilot.model.inputs import Mesh
from pilot.model.proxy import NodeType, Proxy


def connected_proxy(db: Mesh, node_id: str) -> Proxy | None:
    """The proxy of a node id, None where there is none."""
    return db.proxies.get(node_id)


def find_proxy(db: Mesh, node_id: str) -> Proxy:
    """The proxy of a node id, which must be there: LookupError where it is not."""
    found = db.proxies.get(node_id)
    if found is None:
        raise LookupError(f"no proxy {node_id}")
    return found


def routers(db: Mesh) -> tuple[str, ...]:
    """The node ids of the routers."""
    found = ((node_id, db.proxies.get(node_id)) for node_id in db.proxies.all_keys())
    return tuple(node_id for node_id, proxy in found if proxy is not None and proxy.type is NodeType.ROUTER)
