"""The debug page certificatez, which lists the certificates that the control plane knows and their users."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from pilot.config.kinds.istio import GATEWAY
from pilot.config.object import ObjectKey
from pilot.debug import certificates
from pilot.debug.page import Query
from pilot.debug.slices import collect_all
from pilot.debug.sources import Sources
from pilot.mesh.analysis.selector import selected_anywhere
from pilot.mesh.security.credential_access import gateway_credentials
from pilot.mesh.tables.database import Mesh


async def certificatez(sources: Sources, query: Query) -> Any:
    """Return the certificates of the built-in authority and of Secrets, with their validity in Unix seconds.

    `usedBy` are the Gateways that refer to the Secret.
    """
    users: dict[str, list[str]] = {}
    for name, gateway in await collect_all(_uses(sources.db)):
        users.setdefault(name, []).append(gateway)
    of_secrets = await asyncio.to_thread(certificates.validity, certificates.material(sources.db))
    return [
        {**one._asdict(), "usedBy": users.get(one.name, [])}
        for one in [*certificates.of_authority(sources.metrics), *of_secrets]
    ]


def _uses(db: Mesh) -> Iterator[tuple[str, str]]:
    """Yield each Secret that a Gateway refers to, and the Gateway."""
    for key in GATEWAY.all_keys(db):
        names = dict.fromkeys(
            f"Secret {name.namespace}/{one}"
            for namespace in _router_namespaces(db, key)
            for name in sorted(frozenset[Any]().union(*gateway_credentials(db, key, namespace)))
            for one in name.names
            if name.source != "ConfigMap"
        )
        yield from ((name, f"Gateway {key.namespace}/{key.name}") for name in names)


def _router_namespaces(db: Mesh, key: ObjectKey) -> list[str]:
    """Return the namespaces of the routers that a Gateway selects, or its own if it selects none."""
    gateway = GATEWAY.get(db, key)
    if gateway is None:
        return []
    routers = selected_anywhere(db, gateway.spec.selector, key.namespace)
    return sorted({namespace for namespace, _ in routers}) or [key.namespace]
