"""The limit for the hosts of the VirtualServices of a namespace that sidecars route.

A sidecar has a virtual host for each host, also if it belongs to no service. 1 MB of VirtualServices can have 40,000
hosts, which take 200 MB, and many seconds to be computed and sent.
"""

from __future__ import annotations

from pilot.config.object import ObjectKey
from pilot.derive import Steps, hub_in_steps
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_service_names import MESH
from pilot.mesh.traffic.virtual_services import bindings_in

MAX_HOSTS = 4000
"""Maximum number of hosts. They take half a second of CPU time for each group of equal sidecars, and up to 100 MB."""
STEP = 500
"""Number of VirtualServices that are counted in a step."""


@hub_in_steps
def excess_hosts(db: Mesh, namespace: str) -> Steps[frozenset[ObjectKey]]:
    """Return the VirtualServices of a namespace of whose hosts sidecars have only those that belong to a service,
    because they and the older ones have more than `MAX_HOSTS` hosts."""
    total, excess = 0, set()
    for number, binding in enumerate(bindings_in(db, namespace), 1):
        if MESH in binding.gateways and not binding.by_route:
            if total + len(binding.hosts) > MAX_HOSTS:
                excess.add(binding.key)
            else:
                total += len(binding.hosts)
        if number % STEP == 0:
            yield None
    return frozenset(excess)
