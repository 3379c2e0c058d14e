"""The addresses of the box.

Boxes that are connected differ in their number. The addresses of their pods and Services are the same, as in networks
that do not know each other.
"""

from __future__ import annotations

import os

VARIABLE = "BOX_NUMBER"
NUMBER = int(os.environ.get(VARIABLE, "1"))
PODS = "10.80.{}.{}"
SERVICES = "10.96.0.0/16"
KUBERNETES = "10.96.0.1"
API_PORT = 6443
DOMAIN = "cluster.local"
NODE_NAMES = ("node-1", "node-2")
OUTSIDE = "outside"
"""The node's interface to other boxes."""


def node_of(number: int) -> str:
    """Return the address of the nodes of a box."""
    return f"10.{77 + number}.0.1"


def balancers_of(number: int) -> str:
    """Return the addresses of the load balancers of a box."""
    return f"10.{96 + number}.0.0/16"


NODE, BALANCERS = node_of(NUMBER), balancers_of(NUMBER)
