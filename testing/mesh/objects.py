"""Short constructors for configuration objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from pilot.config.catalogue import CATALOGUE
from testing.mesh.world import World, rows_of

Plain = dict[str, Any]
_API_VERSIONS: dict[str, str] = {}
for _kind in CATALOGUE:  # the first kind of several with the same name
    _API_VERSIONS.setdefault(_kind.id.name, f"{_kind.id.group}/{_kind.versions[0]}".removeprefix("/"))
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _parse(text: str) -> Any:
    """Parse YAML, with libyaml if available, because large meshes consist of tens of thousands of texts."""
    return yaml.load(text, _LOADER)


def make(
    kind: str,
    name: str,
    spec: str = "{}",
    namespace: str = "a",
    day: int = 1,
    labels: str = "{}",
    annotations: str = "{}",
    **parts: Any,
) -> Plain:
    """Return an object of any kind.

    `spec`, `labels` and `annotations` are YAML; `day` is the day in January 2025 on which it was created.
    """
    metadata = {
        "name": name,
        "namespace": namespace,
        "creationTimestamp": f"2025-01-{day:02}T00:00:00Z",
        "labels": _parse(labels),
        "annotations": _parse(annotations),
    }
    if kind in ("Node", "Namespace"):
        del metadata["namespace"]
    api = _API_VERSIONS.get(kind, "networking.istio.io/v1")
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": _parse(spec), **parts}


def pod(
    name: str,
    ip: str,
    namespace: str = "a",
    spec: str = "{}",
    labels: str = "{}",
    ready: bool = True,
    phase: str = "Running",
    **metadata: Any,
) -> Plain:
    """Return a Pod with an address, or several separated by commas."""
    ips = ip.split(",")
    plain = make("Pod", name, spec, namespace, labels=labels)
    status = {
        "phase": phase,
        "podIP": ips[0],
        "podIPs": [{"ip": i} for i in ips],
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
    plain["spec"] = {"serviceAccountName": "default", "containers": [{"name": "app", "image": "app"}], **plain["spec"]}
    plain["metadata"] |= metadata
    return plain | {"status": status}


def endpoint_slice(
    service: str,
    *endpoints: str,
    namespace: str = "a",
    ports: str = "[{name: http, port: 8080}]",
    name: str = "",
    **parts: Any,
) -> Plain:
    """Return an EndpointSlice of a Service. Each endpoint is YAML."""
    plain = make(
        "EndpointSlice", name or f"{service}-0", "{}", namespace, labels=f"{{kubernetes.io/service-name: {service}}}"
    )
    del plain["spec"]
    return plain | {"addressType": "IPv4", "endpoints": [_parse(e) for e in endpoints], "ports": _parse(ports), **parts}


def at(ip: str, pod_name: str = "", conditions: str = "{ready: true}", namespace: str = "a") -> str:
    """Return an endpoint for `endpoint_slice`."""
    target = f", targetRef: {{kind: Pod, name: {pod_name}, namespace: {namespace}}}" if pod_name else ""
    return f"{{addresses: [{ip}], conditions: {conditions}{target}}}"


def world(*objects: Mapping[str, Any], mesh_config: str = "", **environ: str) -> World:
    """Return a mesh with these objects."""
    mesh = World(mesh_config, environ)
    mesh.set(rows_of(objects))
    return mesh
