"""Scenarios: small meshes, as folders of the objects that users apply and of the proxies that connect.

README.md describes the files of a folder.
"""

from __future__ import annotations

import copy
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import yaml

Plain = dict[str, Any]
Identity = tuple[str, str, str, str]
"""Group, kind, namespace and name of an object."""

XDS_TYPES = {
    "CDS": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "EDS": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    "LDS": "type.googleapis.com/envoy.config.listener.v3.Listener",
    "RDS": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    "SDS": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
    "ECDS": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
    "NDS": "type.googleapis.com/istio.networking.nds.v1.NameTable",
    "WDS": "type.googleapis.com/istio.workload.Address",
    "WADS": "type.googleapis.com/istio.security.Authorization",
}
"""Type URLs by the short names that the files use."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CREATED = "2024-01-01T00:00:00Z"
_IN_EVERY_CLUSTER: list[Plain] = [
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "default",
            "labels": {"kubernetes.io/metadata.name": "default"},
            "creationTimestamp": _CREATED,
        },
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
            "creationTimestamp": _CREATED,
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "10.96.0.1",
            "clusterIPs": ["10.96.0.1"],
            "ipFamilies": ["IPv4"],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}],
        },
    },
]
"""Objects that every API server has."""


@dataclasses.dataclass(frozen=True)
class ScenarioProxy:
    """A proxy that connects. `node` is its node as proto JSON, and `types` are the short names of its xDS types."""

    name: str
    is_delta: bool
    types: tuple[str, ...]
    node: Plain
    nack: Plain | None = None

    @property
    def type(self) -> str:
        """The kind of proxy: sidecar, router, waypoint or ztunnel."""
        node_id: str = self.node["id"]
        return node_id.partition("~")[0]


@dataclasses.dataclass(frozen=True)
class Step:
    """Objects that are applied, or deleted, after the proxies have received the configuration before it."""

    name: str
    objects: Sequence[Plain]

    @property
    def deletes(self) -> bool:
        return "delete" in self.name

    def apply(self, objects: Sequence[Plain]) -> list[Plain]:
        """Return the objects of the mesh after the step."""
        changes = {identity(o): o for o in self.objects}
        if self.deletes:
            return [o for o in objects if identity(o) not in changes]
        return [changes.pop(identity(o), o) for o in objects] + list(changes.values())


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A mesh, its proxies, and the steps that change it."""

    folder: pathlib.Path
    objects: Sequence[Plain]
    environ: dict[str, str]
    mesh_config: str
    mesh_networks: str
    proxies: Sequence[ScenarioProxy]
    steps: Sequence[Step]

    @property
    def name(self) -> str:
        return self.folder.name


def find_scenarios(folders: Sequence[pathlib.Path], words: Sequence[str]) -> list[pathlib.Path]:
    """Return the folders of scenarios whose names contain one of the words, or all folders if there are none."""
    paths = [path for folder in folders for path in sorted(folder.iterdir()) if (path / "proxies.yaml").exists()]
    return [path for path in paths if not words or any(word in path.name for word in words)]


def load_scenario(folder: pathlib.Path) -> Scenario:
    """Read the folder of a scenario."""
    objects = _documents(folder / "config.yaml")
    names = {(o["kind"], o["metadata"]["name"]) for o in objects}
    objects = [o for o in _IN_EVERY_CLUSTER if (o["kind"], o["metadata"]["name"]) not in names] + objects
    steps = [Step(path.stem, _documents(path)) for path in sorted((folder / "steps").glob("*.yaml"))]
    _set_creation_times(objects, steps)
    pods = {o["metadata"]["name"]: o for o in objects if o["kind"] == "Pod"}
    environ = _load(folder / "env.yaml") or {}
    return Scenario(
        folder,
        objects,
        {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in environ.items()},
        _text(folder / "meshconfig.yaml"),
        _text(folder / "meshnetworks.yaml"),
        [_proxy(entry, pods) for entry in _load(folder / "proxies.yaml")],
        steps,
    )


def identity(o: Plain) -> Identity:
    """Return the group, kind, namespace and name of an object."""
    group = o["apiVersion"].rpartition("/")[0]
    return group, o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]


def _text(path: pathlib.Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""


def _load(path: pathlib.Path) -> Any:
    return yaml.load(_text(path), _LOADER)


def _documents(path: pathlib.Path) -> list[Plain]:
    """Return the objects in a file, including the items of Lists."""
    documents = [document for document in yaml.load_all(_text(path), _LOADER) if document]
    return [
        copy.deepcopy(o)
        for document in documents
        for o in (document["items"] if document["kind"] == "List" else [document])
    ]


def _set_creation_times(objects: Sequence[Plain], steps: Sequence[Step]) -> None:
    """Set the creation times of objects in steps. Edited objects keep theirs, and new objects are the youngest."""
    created = {identity(o): o["metadata"].get("creationTimestamp") for o in objects}
    for number, step in enumerate(steps):
        for o in step.objects:
            if step.deletes:
                created.pop(identity(o), None)
            elif timestamp := created.setdefault(identity(o), f"2030-01-01T00:{number:02}:00Z"):
                o["metadata"]["creationTimestamp"] = timestamp


def _proxy(entry: Plain, pods: dict[str, Plain]) -> ScenarioProxy:
    """Return the proxy of an entry in proxies.yaml, which names a Pod or has an address and labels."""
    kind = entry.get("type", "sidecar")
    pod = pods.get(entry.get("pod", ""), {})
    pod_metadata, pod_status, pod_spec = pod.get("metadata", {}), pod.get("status", {}), pod.get("spec", {})
    namespace = entry.get("namespace") or pod_metadata.get("namespace", "default")
    pod_name = entry.get("pod") or entry.get("id") or entry["name"]
    pod_ips = [ip["ip"] for ip in pod_status.get("podIPs", [])]
    ips = entry.get("ips") or pod_ips or [entry.get("ip") or pod_status.get("podIP", "10.255.255.255")]
    labels = {**pod_metadata.get("labels", {}), **entry.get("labels", {})}
    workload = labels.get("app", pod_name)
    node_name = {"NODE_NAME": pod_spec["nodeName"]} if pod_spec.get("nodeName") else {}
    metadata = {
        "NAME": pod_name,
        "NAMESPACE": namespace,
        "SERVICE_ACCOUNT": pod_spec.get("serviceAccountName", "default"),
        "CLUSTER_ID": "Kubernetes",
        "ISTIO_VERSION": "1.32.0",
        "MESH_ID": "cluster.local",
        "INSTANCE_IPS": ",".join(ips),
        "LABELS": labels,
        "INTERCEPTION_MODE": "REDIRECT",
        "WORKLOAD_NAME": workload,
        "PROXY_CONFIG": {},
        **node_name,
        **(entry.get("metadata") or {}),
    }
    metadata = {name: value for name, value in metadata.items() if value is not None}
    types = ["WDS", "WADS"] if kind == "ztunnel" else ["CDS", "EDS", "LDS", "RDS"]
    if kind == "sidecar" and str(metadata.get("DNS_CAPTURE", "")).lower() == "true":
        types.append("NDS")
    node = {
        "id": f"{kind}~{ips[0]}~{pod_name}.{namespace}~{namespace}.svc.cluster.local",
        "cluster": f"{workload}.{namespace}",
        "metadata": metadata,
    }
    return ScenarioProxy(
        entry["name"], entry.get("mode") == "delta", tuple(entry.get("types", types)), node, entry.get("refuses")
    )
