"""The limit for the large ServiceEntries of a namespace.

A ServiceEntry of 5 kB can have 800 clusters with 100 endpoints each, and a namespace can have many of them. Without a
limit, one tenant could exhaust the memory of the control plane and of all proxies.
"""

from __future__ import annotations

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.networking.service_entry import count_expanded
from pilot.config.object import ObjectKey, age
from pilot.derive import hub
from pilot.mesh.tables.database import Mesh


@hub
def excess_entries(db: Mesh, namespace: str) -> frozenset[ObjectKey]:
    """Return the large ServiceEntries of a namespace that are ignored, because they and the older ones expand to more
    endpoints than the settings allow.

    4000 clusters, which is the default, take up to 100 MB.
    """
    rows = (SERVICE_ENTRY.get(db, key) for key in SERVICE_ENTRY.keys(db, "large", namespace))
    total, excess = 0, set()
    for row in sorted((row for row in rows if row is not None), key=age):
        total += count_expanded(row.spec)
        if total > db.settings.registry.max_entry_endpoints:
            excess.add(row.key)
    return frozenset(excess)
