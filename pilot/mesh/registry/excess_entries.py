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

MAX_EXPANDED_ENDPOINTS = 320_000
"""Maximum number of endpoints that the large ServiceEntries of a namespace expand to, as `count_expanded` counts them.

They are those of eight ServiceEntries with 250 external hosts and 4 ports each, and take about 60 MB.
"""


@hub
def excess_entries(db: Mesh, namespace: str) -> frozenset[ObjectKey]:
    """Return the large ServiceEntries of a namespace that are ignored. Older ones take precedence."""
    rows = (SERVICE_ENTRY.get(db, key) for key in SERVICE_ENTRY.keys(db, "large", namespace))
    total, excess = 0, set()
    for row in sorted((row for row in rows if row is not None), key=age):
        total += count_expanded(row.spec)
        if total > MAX_EXPANDED_ENDPOINTS:
            excess.add(row.key)
    return frozenset(excess)
