"""Reads the objects that analyzers need, from documents of files or from an API server."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObject, AnalyzedObjects
from pilot.cli.ctl.analyzers.analyzer import INJECTOR_CONFIG, MUTATING_WEBHOOKS, REVISION, Analyzer, ReadKind
from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import GroupKind
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.problem import Problem
from pilot.ingest.analysis import decode_mesh
from pilot.ingest.cluster.watched_kinds import collection_of
from pilot.ingest.decode import listed_objects
from pilot.ingest.files.documents import Document, SyntaxFault, read_document
from pilot.install.installation_labels import DEFAULT, TAG
from pilot.kube.api_errors import ApiError
from pilot.kube.object_client import ObjectClient, VersionedKind

_FORBIDDEN = 403
_MESH_CONFIG = "istio"


class ClusterObjects(NamedTuple):
    """The objects of a cluster. `denied` maps the kinds that may not be listed to the reason."""

    objects: list[AnalyzedObject]
    denied: Mapping[GroupKind, str]


def objects_in(documents: Iterable[tuple[str, Document]]) -> Iterator[AnalyzedObject]:
    """Yield the objects in the documents of files."""
    for file, document in documents:
        for prefix, plain in listed_objects(document.plain, ""):
            if isinstance(plain, dict):
                yield _placed(plain, file, document, prefix)


def _placed(plain: dict[str, object], file: str, document: Document, prefix: str) -> AnalyzedObject:
    def line_of(path: str) -> int:
        return document.line_of(".".join(part for part in (prefix, path or "metadata.name") if part))

    return AnalyzedObject(plain, file, line_of)


async def read_cluster(client: ObjectClient, kinds: Iterable[ReadKind], cluster: str = "") -> ClusterObjects:
    """Return the objects of some kinds. Raise KubeError if the API server is unreachable.

    If several versions of a kind are given, the objects are read in the first version that has any.
    """
    read, denied, complete = ClusterObjects([], {}), dict[GroupKind, str](), set[GroupKind]()
    for kind in kinds:
        if kind.id in complete:
            continue
        try:
            versioned = VersionedKind(kind.api_version, kind.name)
            listed = await client.list(versioned, kind.label, fields=kind.fields)
        except ApiError as error:
            if error.code != _FORBIDDEN:
                raise
            denied[kind.id] = str(error)
            continue
        complete |= {kind.id} if listed else set()
        read.objects.extend(AnalyzedObject(plain, cluster=cluster) for plain in listed)
    return read._replace(denied=denied)


def mesh_kinds() -> Iterator[ReadKind]:
    """Yield the kinds that control planes read, in each of their versions, the preferred one first."""
    for kind in CATALOGUE:
        for version in kind.versions:
            api_version = f"{kind.id.group}/{version}" if kind.id.group else version
            yield ReadKind(api_version, kind.id.name, fields=collection_of(kind, version).fields)


def mesh_config_of(objects: Collection[AnalyzedObject], revision: str = "") -> MeshConfig:
    """Return the mesh config of a revision in the ConfigMap of a cluster, or the default.

    If `revision` is "", it is the revision that the tag `default` points to.
    """
    revision = revision or default_revision(objects)
    name = _MESH_CONFIG if revision == DEFAULT else f"{_MESH_CONFIG}-{revision}"
    for one in objects:
        text = one.value("data", "mesh")
        if one.id == INJECTOR_CONFIG.id and one.name == name and isinstance(text, str):
            try:
                return decode_mesh(read_document(text.encode(), "").plain)[0]
            except SyntaxFault:
                break
    return MeshConfig()


def default_revision(objects: Iterable[AnalyzedObject]) -> str:
    """Return the revision that the tag `default` points to, or `default` if there is no such tag."""
    webhooks = (one.labels for one in objects if one.id == MUTATING_WEBHOOKS.id)
    return next((labels.get(REVISION, DEFAULT) for labels in webhooks if labels.get(TAG) == DEFAULT), DEFAULT)


def run_analyzers(analyzers: Iterable[Analyzer], objects: AnalyzedObjects) -> list[Problem]:
    """Return the problems that analyzers find."""
    return [one.place(problem) for analyzer in analyzers for one, problem in analyzer.check(objects)]
