"""Conversion of a Consul service into a ServiceEntry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SUFFIX = "service.consul"
PROTOCOLS = ("http", "http2", "https", "grpc", "tcp", "tls", "mongo", "redis", "mysql", "udp")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


def build_entry(name: str, instances: Sequence[Mapping[str, Any]], namespace: str) -> dict[str, Any] | None:
    """Return the ServiceEntry of a service, or None if it has no healthy instance with a port.

    The entry has one port, the lowest port of its instances. The protocol is the metadata `protocol` of an instance, or
    else a tag that names a protocol.
    """
    usable = [
        instance
        for instance in instances
        if instance["Service"].get("Port") and _is_healthy(instance.get("Checks") or ())
    ]
    if not usable:
        return None
    protocols = (_protocol(instance["Service"]) for instance in usable)
    protocol = next((protocol for protocol in protocols if protocol != "tcp"), "tcp")
    port = {
        "number": min(instance["Service"]["Port"] for instance in usable),
        "name": protocol,
        "protocol": protocol.upper(),
    }
    spec = {
        "hosts": [f"{name.lower()}.{SUFFIX}"],
        "location": "MESH_INTERNAL",
        "resolution": "STATIC",
        "ports": [port],
        "endpoints": [_endpoint(instance["Service"], instance["Node"], protocol) for instance in usable],
    }
    return {"metadata": {"namespace": namespace, "name": f"consul-{name.lower()}"}, "spec": spec}


def _endpoint(service: Mapping[str, Any], node: Mapping[str, Any], port: str) -> dict[str, Any]:
    labels = {
        key: value
        for key, value in (service.get("Meta") or {}).items()
        if _LABEL.fullmatch(key) and _LABEL.fullmatch(value)
    }
    return {
        "address": service.get("Address") or node["Address"],
        "ports": {port: service["Port"]},
        "labels": labels,
        "locality": node.get("Datacenter", ""),
        "weight": (service.get("Weights") or {}).get("Passing", 1),
    }


def _is_healthy(checks: Iterable[Mapping[str, Any]]) -> bool:
    return all(check.get("Status") in ("passing", "warning") for check in checks)


def _protocol(service: Mapping[str, Any]) -> str:
    candidates = [(service.get("Meta") or {}).get("protocol", ""), *(service.get("Tags") or ())]
    return next((word.lower() for word in candidates if word.lower() in PROTOCOLS), "tcp")
