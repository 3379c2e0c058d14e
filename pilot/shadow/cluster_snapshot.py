"""The objects of a cluster at one time, and the mesh that this control plane derives from them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pilot.config.catalogue import Catalogue
from pilot.config.group_kind import GroupKind
from pilot.config.kind import AnyKind
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.config.problem import Problem, Severity
from pilot.derive import Node
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.ingest.cluster.watched_kinds import collection_of, read_kinds
from pilot.ingest.decode import DocumentOrigin, decode_document
from pilot.ingest.files.documents import SyntaxFault, read_document
from pilot.ingest.mesh_config import decode_mesh_config, decode_mesh_networks
from pilot.ingest.namespace_filter import Edit, NamespaceFilter
from pilot.kube.object_client import ObjectClient, VersionedKind
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import EVERY_ACCOUNT, MESH_CONFIG, Mesh
from pilot.settings import Settings

Plain = dict[str, Any]
_CONFIG_MAP = VersionedKind("v1", "ConfigMap")
_MESH_CONFIG_KEYS = ("mesh", "meshNetworks")


class ClusterSnapshot(NamedTuple):
    """Objects of the kinds that the control plane reads, the mesh config and the mesh networks, as plain data."""

    objects: list[Plain]
    mesh_config: Any
    mesh_networks: Any


async def read_snapshot(client: ObjectClient, settings: Settings, catalogue: Catalogue) -> ClusterSnapshot:
    """Read a cluster. Raise KubeError if it is unreachable or if a kind cannot be listed."""
    objects: list[Plain] = []
    for kind in read_kinds(catalogue, settings.kubernetes.ignored, settings.kubernetes.included):
        objects += await _list_kind(client, kind)
    namespace = settings.mesh.registry.namespace
    revision = settings.ingest.revision
    name = "istio" if revision in ("", "default") else f"istio-{revision}"
    config_maps = await client.list(_CONFIG_MAP, namespace=namespace, fields=f"metadata.name={name}")
    data: Mapping[str, str] = (config_maps[0].get("data") if config_maps else None) or {}
    return ClusterSnapshot(objects, *(_read_yaml(data.get(key, "")) for key in _MESH_CONFIG_KEYS))


async def _list_kind(client: ObjectClient, kind: AnyKind) -> list[Plain]:
    """Return the objects of a kind in the preferred version that the server serves."""
    for version in kind.versions:
        api_version = f"{kind.id.group}/{version}" if kind.id.group else version
        fields = collection_of(kind, version).fields
        if listed := await client.list(VersionedKind(api_version, kind.id.name), fields=fields):
            return listed
    return []


def _read_yaml(text: str) -> Any:
    try:
        return read_document(text.encode(), "").plain if text else None
    except SyntaxFault:
        return None  # as in a control plane that starts with the defaults


class Row(NamedTuple):
    """The table and the key of an object."""

    table: str
    key: Hashable


class ShadowMesh:
    """A mesh that is derived from a snapshot. `problems` are those of its objects, and `refused` the invalid objects.

    The snapshot replaces the objects of an API server, so nothing is fetched: neither key sets nor remote clusters.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        settings: Settings,
        on_failure: Callable[[Node, Exception], None] | None = None,
    ) -> None:
        self.mesh = Mesh(settings.mesh, environment=os.environ, on_failure=on_failure)
        self.problems: list[Problem] = []
        self.refused: list[Row] = []
        self._filter = NamespaceFilter(self.mesh)
        self._watched: dict[str, Node] = {}
        mesh_config, problems = decode_mesh_config([snapshot.mesh_config] if snapshot.mesh_config else [])
        networks, more = decode_mesh_networks(snapshot.mesh_networks)
        self.problems += [*problems, *more]
        edits: list[Edit] = [
            (MESH_CONFIG, "mesh", mesh_config or MeshConfig()),
            (MESH_CONFIG, "networks", networks or MeshNetworks()),
        ]
        origin = DocumentOrigin(settings.mesh.registry.cluster_id, True, settings.ingest.revision)
        for plain in snapshot.objects:
            decoded = decode_document(plain, origin=origin)
            edits += [(entry.table, entry.key, entry.object) for entry in decoded.entries]
            self.problems += decoded.problems
            self.refused += [Row(*row) for row in decoded.refused]
        self.mesh.commit([(self.mesh.secret_access, EVERY_ACCOUNT, True), (self.mesh.clock, "now", time.time())])
        self._commit(edits)

    def connect(self, proxies: Sequence[tuple[str, Proxy]]) -> None:
        """Add proxies by node ID. Their plans stay derived."""
        self.mesh.commit([(self.mesh.proxies, node_id, proxy) for node_id, proxy in proxies])
        for node_id, _ in proxies:
            if node_id not in self._watched:
                self._watched[node_id] = self.mesh.watch(proxy_plan, node_id)
            self.mesh.refresh(self._watched[node_id])

    def row(self, row: Row) -> Any:
        """Return the object in a row, or None if it does not exist."""
        return self.mesh.tables[row.table].peek(row.key)

    def replace(self, row: Row, value: Any) -> None:
        """Replace the object in a row, or delete it if `value` is None."""
        self.mesh.commit([(self.mesh.tables[row.table], row.key, value)])

    def _commit(self, edits: Iterable[Edit]) -> None:
        self.mesh.commit([(self.mesh.tables[table], key, row) for table, key, row in self._filter.admit(edits)])

    def errors(self) -> list[Problem]:
        """Return the problems because of which objects are not in force."""
        return [problem for problem in self.problems if problem.severity is Severity.ERROR]


def is_mesh_row(row: Row) -> bool:
    """Return whether a row is the mesh config or the mesh networks, which always exist."""
    return row.table == MESH_CONFIG


def default_mesh_row(row: Row) -> Any:
    """Return the defaults of the mesh config or of the mesh networks."""
    return MeshConfig() if row.key == "mesh" else MeshNetworks()


def kind_name(kind: GroupKind) -> str:
    """Return the name of a kind for people, with its group if Istio has a kind of the same name."""
    return str(kind) if kind.name == "Gateway" else kind.name
