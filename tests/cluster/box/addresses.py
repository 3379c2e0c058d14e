"""The addresses of the box."""

from __future__ import annotations

NODE = "10.78.0.1"
PODS = "10.78.{}.{}"
BALANCERS = "10.97.0.0/16"
SERVICES = "10.96.0.0/16"
KUBERNETES = "10.96.0.1"
API_PORT = 6443
DOMAIN = "cluster.local"
NODE_NAMES = ("node-1", "node-2")
