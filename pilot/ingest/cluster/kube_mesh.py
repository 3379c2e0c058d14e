"""Watches mesh config and mesh networks in the ConfigMaps of the control plane's namespace.

If there are two ConfigMaps, the shared one is the lower layer. If there are none, the defaults apply. If a layer is
invalid, the last valid configuration stays in force. Before there is one, invalid layers are ignored.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.config.problem import ObjectRef, Problem, Severity, has_errors
from pilot.ingest.batch import Batch
from pilot.ingest.files.documents import SyntaxFault, read_document
from pilot.ingest.mesh_config import MESH, NETWORKS, decode_mesh_config, decode_mesh_networks
from pilot.ingest.problems import ProblemStore
from pilot.kube.api_client import ApiClient
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.list_watch import ObjectChange
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.tables.database import MESH_CONFIG

Decode = Callable[[Sequence[Any]], tuple[Any, list[Problem]]]


class MeshRow(NamedTuple):
    """A row of the table `mesh`. `source` is the data key in ConfigMaps, and `key` is the key in the table."""

    source: str
    key: str
    subject: ObjectRef
    default: Any
    decode: Decode


def _upper_networks(layers: Sequence[Any]) -> tuple[Any, list[Problem]]:
    """Return the mesh networks of the top layer, and their problems. Layers of mesh networks are not merged."""
    return decode_mesh_networks(layers[-1]) if layers else (MeshNetworks(), [])


MESH_ROW = MeshRow("mesh", "mesh", MESH, MeshConfig(), decode_mesh_config)
NETWORKS_ROW = MeshRow("meshNetworks", "networks", NETWORKS, MeshNetworks(), _upper_networks)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class MeshConfigMaps:
    """Reads `rows` from the ConfigMaps called `names`, which are ordered from the lowest layer to the highest."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        names: Sequence[str],
        rows: Sequence[MeshRow],
        batch: Batch,
        problems: ProblemStore,
        pace: WatchOptions,
        rng: random.Random,
    ) -> None:
        self._namespace, self._names, self._rows, self._batch, self._problems = namespace, names, rows, batch, problems
        self._data: dict[str, dict[str, str]] = {}
        self._loaded: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._informers = {name: self._create_informer(client, name, pace, rng) for name in names}

    def _create_informer(self, client: ApiClient, name: str, pace: WatchOptions, rng: random.Random) -> Informer:
        path = f"/api/v1/namespaces/{self._namespace}/configmaps"
        return Informer(client, WatchedCollection(path, fields=f"metadata.name={name}"), self._receive, pace, rng)

    async def start(self) -> None:
        """Start watching the ConfigMaps."""
        self._tasks = [
            asyncio.create_task(informer.run(), name=f"watch ConfigMap {name}")
            for name, informer in self._informers.items()
        ]

    async def synced(self) -> None:
        """Wait until the rows are in the batch."""
        for informer in self._informers.values():
            await informer.synced.wait()
        self._put()

    async def stop(self) -> None:
        """Stop the watches."""
        await cancel_tasks(*self._tasks)

    async def _receive(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            if change.raw is None:
                self._data.pop(change.name.name, None)
            else:
                self._data[change.name.name] = msgspec.json.decode(change.raw, type=_ConfigMap).data or {}
        if all(informer.synced.is_set() for informer in self._informers.values()):
            self._put()

    def _put(self) -> None:
        for row in self._rows:
            layers, is_valid = self._read(row)
            if is_valid or row.key not in self._loaded:
                self._loaded.add(row.key)
                value = row.decode(layers)[0]
                self._batch.put([(MESH_CONFIG, row.key, row.default if value is None else value)])

    def _read(self, row: MeshRow) -> tuple[list[Any], bool]:
        """Return the valid layers of a row, and whether they are all of its layers and valid together."""
        layers: list[Any] = []
        texts = {name: self._data[name][row.source] for name in self._names if row.source in self._data.get(name, {})}
        for name in self._names:
            plain, problems = self._layer(row, texts[name]) if name in texts else (None, [])
            if not has_errors(problems) and name in texts:
                layers.append(plain)
                problems += [p for p in row.decode(layers)[1] if p.severity is Severity.ERROR]
            self._report(row, name, problems)
        return layers, len(layers) == len(texts) and not has_errors(row.decode(layers)[1])

    def _layer(self, row: MeshRow, text: str) -> tuple[Any, list[Problem]]:
        """Return a layer as plain data, and the problems in it."""
        try:
            document = read_document(text.encode(), row.source)
        except SyntaxFault as fault:
            return None, [Problem(code="syntax-error", object=row.subject, message=str(fault), line=fault.line)]
        problems = row.decode([document.plain])[1]
        return document.plain, [msgspec.structs.replace(p, line=document.line_of(p.path)) for p in problems]

    def _report(self, row: MeshRow, name: str, problems: Sequence[Problem]) -> None:
        where = f"ConfigMap {self._namespace}/{name}"
        self._problems.replace((where, row.source), [msgspec.structs.replace(p, file=where) for p in problems])
