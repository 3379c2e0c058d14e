"""An in-memory mesh: objects in, proxies' resources out, without a server."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Set
from typing import Any, TypeVar

import yaml
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from google.protobuf import any_pb2

from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.derive import UNSET, Derived, Node
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.envoy.resource import Resource
from pilot.ingest.decode import OWN, DocumentOrigin, decode_document
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.ingest.namespace_filter import Edit, NamespaceFilter
from pilot.lib.xds_types import SECRET
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import EVERY_ACCOUNT, Mesh
from pilot.settings.parse import load

T = TypeVar("T")
Rows = dict[tuple[str, ObjectKey | RegistryKey], Object[Any]]


def parse_objects(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def rows_of(objects: Iterable[Mapping[str, Any]], cluster: str = OWN.cluster) -> Rows:
    """Return the decoded rows of a cluster by table and key. Any problem is an error."""
    rows: Rows = {}
    for plain in objects:
        decoded = decode_document(plain, origin=DocumentOrigin(cluster, cluster == OWN.cluster))
        assert not decoded.refused, decoded.problems
        for entry in decoded.entries:
            rows[entry.table, entry.key] = entry.object
    return rows


def proxy(
    kind: str, name: str, namespace: str, ip: str, labels: Mapping[str, str] | None = None, **metadata: Any
) -> Proxy:
    """Return an Istio proxy as a sidecar or router of a pod."""
    defaults = {
        "NAMESPACE": namespace,
        "CLUSTER_ID": "Kubernetes",
        "MESH_ID": "cluster.local",
        "INTERCEPTION_MODE": "REDIRECT",
    }
    return Proxy(
        type=NodeType(kind),
        id=f"{name}.{namespace}",
        ips=(ip,),
        dns_domain=f"{namespace}.svc.cluster.local",
        namespace=namespace,
        metadata={**defaults, "LABELS": dict(labels or {}), **metadata},
        version="1.32.0",
    )


class World:
    """Tables, connected proxies and their resources.

    `subscriptions` are the names that every proxy subscribes to, by type URL, for types that are only sent by name.
    """

    def __init__(self, mesh_config: str = "", environ: Mapping[str, str] | None = None) -> None:
        self.failures: list[str] = []
        self.mesh = Mesh(
            load([], dict(environ or {})).settings.mesh,
            on_failure=lambda node, error: self.failures.append(f"{node}: {error!r}"),
        )
        mesh, problems = decode_mesh_config([yaml.safe_load(mesh_config)] if mesh_config else [])
        assert mesh is not None, problems
        self.discovery = NamespaceFilter(self.mesh)
        self.commit([("MeshConfig", "mesh", mesh), ("MeshConfig", "networks", MeshNetworks())])
        self.mesh.commit([(self.mesh.secret_access, EVERY_ACCOUNT, True)])
        self.subscriptions: Mapping[str, frozenset[str]] = {}
        self._watched: dict[Any, Any] = {}
        self._planned: dict[str, set[Any]] = {}
        self._values: dict[tuple[Any, ...], Node] = {}

    def set(self, rows: Mapping[tuple[str, ObjectKey | RegistryKey], Object[Any] | None]) -> None:
        """Apply rows in one commit. None deletes a row."""
        self.commit([(table, key, row) for (table, key), row in rows.items()])

    def commit(self, edits: Iterable[Edit]) -> None:
        """Apply edits as a batch does."""
        self.mesh.commit([(self.mesh.tables[table], key, row) for table, key, row in self.discovery.admit(edits)])

    def apply(self, text: str) -> None:
        self.set(rows_of(parse_objects(text)))

    def apply_objects(self, *objects: Mapping[str, Any]) -> None:
        self.set(rows_of(objects))

    def connect(self, node: Proxy) -> str:
        key = f"{node.type}~{node.ips[0]}~{node.id}~{node.dns_domain}"
        self.mesh.commit([(self.mesh.proxies, key, node)])
        return key

    def resources(self, node_id: str) -> dict[str, dict[str, Resource]]:
        """Return all resources of a proxy, by type URL and name."""
        by_type: dict[str, dict[str, Resource]] = {}
        plan = proxy_plan(self.mesh, node_id)
        named_groups = {
            url: groups for url, names in self.subscriptions.items() if (groups := plan.groups_of(url, names))
        }
        planned = {**plan.groups, **named_groups}
        self._planned[node_id] = {group for groups in planned.values() for group in groups}
        for url, groups in planned.items():
            by_name = by_type.setdefault(url, {})
            for group in groups:
                node = self._watched.get(group)
                if node is None:
                    node = self._watched[group] = self.mesh.watch(group.fn, *group.args)
                self.mesh.refresh(node)
                for resource in node.value.values() if node.value is not UNSET else ():
                    by_name.setdefault(resource.name, resource)
        return by_type

    def value(self, fn: Derived[..., T], *args: Any) -> T:
        """Return a derived value, or the last good one if it fails, and keep it up to date."""
        node = self._values.get((fn, args))
        if node is None:
            node = self._values[fn, args] = self.mesh.watch(fn, *args)
        self.mesh.refresh(node)
        return node.value

    def secrets(self, node_id: str, *names: str) -> dict[str, secret_pb2.Secret]:
        """Return the requested secrets that the proxy receives, by name."""
        groups = proxy_plan(self.mesh, node_id).groups_of(SECRET, frozenset(names)) or ()
        resources = [resource for group in groups for resource in group.fn(self.mesh, *group.args).values()]
        return {
            resource.name: secret_pb2.Secret.FromString(any_pb2.Any.FromString(resource.any).value)
            for resource in resources
        }

    def sweep(self) -> int:
        """Free everything that no proxy's last plan uses, and return the number of remaining nodes."""
        for group in self._watched.keys() - set().union(*self._planned.values()):
            self.mesh.unwatch(self._watched.pop(group))
        self.mesh.collect()
        return len(self.mesh)

    def graph(self) -> dict[Any, Set[Any]]:
        """Return the function and arguments of every derived value, with those of its inputs."""
        return {_name(node): {_name(source) for source in node.inputs()} for node in self.mesh.live_nodes()}

    def rows(self) -> Rows:
        """Return the current objects of all tables."""
        tables = {kind.table_name: kind.table(self.mesh) for kind in self.mesh.catalogue}
        return {(name, key): row for name, table in tables.items() for key, row in table.rows()}


def _name(node: Node) -> tuple[Any, ...]:
    return (node.fn.__module__, node.fn.__name__, node.args)


def read_optional(path: pathlib.Path) -> str:
    """Return the text of a file, or "" if it does not exist."""
    return path.read_text() if path.exists() else ""
