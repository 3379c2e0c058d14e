"""Plain data (of YAML, JSON, an API server) → objects of the tables, and problems where it is not what it should be."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.config.base import Lenient
from pilot.config.catalogue import CATALOGUE, Catalogue, is_mesh_group
from pilot.config.group_kind import GroupKind
from pilot.config.kind import AnyKind, BaseKind
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY
from pilot.config.kubernetes.pod import OwnerReference
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef, Problem, Severity, below, error, warning
from pilot.ingest import shape
from pilot.ingest.kube_kinds import is_built_in

REVISION_LABEL = "istio.io/rev"
_READ_ANNOTATIONS = ("istio.io", "kubernetes.io/ingress.class", "openshift.io/sa.scc.")
_FIELDS = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
_ZULU = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


class Metadata(Lenient, frozen=True):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    generate_name: str = ""
    owner_references: tuple[OwnerReference, ...] = ()


Row = tuple[str, ObjectKey | RegistryKey]


class DocumentOrigin(NamedTuple):
    """Says where documents come from. `cluster`: the one whose objects they are; `own`: its configuration counts, not only what runs in it;
    `revision`: configuration with a label istio.io/rev of another one is left out. What runs in a cluster, and its namespaces, is there for
    every revision; so is a Gateway of the Gateway API, whose label may be a tag: routers that were deployed before it changed are served
    until they are gone."""

    cluster: str = "Kubernetes"
    own: bool = True
    revision: str = ""


OWN = DocumentOrigin()


class Entry(NamedTuple):
    """An object, with the name of its table and its key."""

    table: str
    key: ObjectKey | RegistryKey
    object: Object[Any]


class Decoded(NamedTuple):
    """Holds what a document gave. An object with an error is in `refused` instead of `entries`, by table and key where it has a name."""

    entries: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()
    refused: tuple[Row, ...] = ()


def nowhere(_: str) -> int:
    return 0


def decode_document(
    plain: Any,
    file: str = "",
    line_of: Callable[[str], int] = nowhere,
    origin: DocumentOrigin = OWN,
    catalogue: Catalogue = CATALOGUE,
) -> Decoded:
    """Decodes one document: an object, or a `List` of them.

    `line_of` gives the line of a path in the document, 0 where unknown. An object of another revision (label istio.io/rev) and an
    object of a kind that no mesh reads give neither an entry nor a problem.
    """
    entries: list[Entry] = []
    problems: list[Problem] = []
    refused: list[Row] = []
    for prefix, item in _objects(plain, ""):
        entry, found, row = _decode(item, origin, catalogue)
        for problem in found:
            whole = _join(prefix, problem.path)
            path = problem.path if problem.object.name else whole  # which of the list it is, nothing else tells
            problems.append(msgspec.structs.replace(problem, path=path, file=file, line=line_of(whole)))
        if entry is not None:
            entries.append(entry)
        elif row is not None:
            refused.append(row)
    return Decoded(tuple(entries), tuple(problems), tuple(refused))


def _objects(plain: Any, prefix: str) -> Iterable[tuple[str, Any]]:
    kind = plain.get("kind") if isinstance(plain, dict) else None
    if isinstance(kind, str) and kind.endswith("List") and isinstance(plain.get("items"), list):
        for index, item in enumerate(plain["items"]):
            if isinstance(item, dict) and kind != "List":  # items of a ServiceList need not repeat what they are
                item = {"apiVersion": plain.get("apiVersion"), "kind": kind.removesuffix("List"), **item}
            yield from _objects(item, _join(prefix, f"items[{index}]"))
    else:
        yield prefix, plain


def _join(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path


def decode_object(kind: AnyKind, plain: Any, origin: DocumentOrigin) -> Decoded:
    """Decodes an object that is known to be of a kind, whatever it says itself; results are those of `decode_document`."""
    entry, problems, row = _decode_as(kind, plain, origin)
    return Decoded(
        (entry,) if entry is not None else (), tuple(problems), (row,) if entry is None and row is not None else ()
    )


def _decode(plain: Any, origin: DocumentOrigin, catalogue: Catalogue) -> tuple[Entry | None, list[Problem], Row | None]:
    """Returns the entry, or the problems that refuse it with the row that it would be; nothing at all for what is not read."""
    kind = _identify(plain, catalogue)
    return _decode_as(kind, plain, origin) if isinstance(kind, BaseKind) else (None, kind, None)


def _decode_as(kind: AnyKind, plain: Any, origin: DocumentOrigin) -> tuple[Entry | None, list[Problem], Row | None]:
    """Returns for an object of a kind what `_decode` does."""
    metadata, problems = _decode_metadata(plain.get("metadata"))
    if (
        origin.revision
        and _has_revisions(kind)
        and metadata.labels.get(REVISION_LABEL, origin.revision) != origin.revision
    ):
        return None, [], None
    namespace = (metadata.namespace or "default") if kind.namespaced else ""
    subject = ObjectRef(kind.id, namespace, metadata.name)
    if not (origin.own or kind.per_cluster):
        return None, _about(subject, [_remote(kind, origin.cluster)]), None
    key = kind.key(origin.cluster, namespace, metadata.name)
    if problems:
        named = not any(p.path in ("metadata", "metadata.name", "metadata.namespace") for p in problems)
        return None, _about(subject, problems), (kind.table_name, key) if named else None
    body = _body(kind, plain)
    spec, wrong = shape.decode(body, kind.struct)
    if problems := [*_check_fields(kind, plain), *_placed(kind, wrong)]:
        return None, _about(subject, problems), (kind.table_name, key)
    annotations = {k: v for k, v in metadata.annotations.items() if any(part in k for part in _READ_ANNOTATIONS)}
    decoded = Object(
        kind.id, namespace, metadata.name, spec, metadata.labels, annotations, _utc(metadata.creation_timestamp)
    )
    problems = _about(subject, kind.validate(decoded))
    if any(p.severity is Severity.ERROR for p in problems):
        return None, problems, (kind.table_name, key)
    return Entry(kind.table_name, key, decoded), problems, None


def _has_revisions(kind: AnyKind) -> bool:
    return not is_built_in(kind) and kind.id != KUBERNETES_GATEWAY.id


def _remote(kind: AnyKind, cluster: str) -> Problem:
    message = f"{kind.id.name} has no effect in cluster {cluster}: configuration is read in the own cluster alone"
    return warning("remote-configuration", "kind", message)


def _decode_metadata(plain: Any) -> tuple[Metadata, list[Problem]]:
    """Returns the metadata, as far as it is right where there are problems."""
    metadata, wrong = shape.decode(plain or {}, Metadata)
    if metadata is None:
        namespace, name = _named(plain)
        return Metadata(name=name, namespace=namespace), list(below("metadata", wrong))
    return metadata, list(_check_metadata(metadata))


def _identify(plain: Any, catalogue: Catalogue) -> AnyKind | list[Problem]:
    """Returns the kind of an object; where it is none that is read the problem, if that is one."""
    if not isinstance(plain, dict):
        return [error("not-an-object", "", "expected an object with apiVersion, kind and metadata")]
    version, name = plain.get("apiVersion"), plain.get("kind")
    for field, value in (("apiVersion", version), ("kind", name)):
        if not isinstance(value, str) or not value:
            return [error("not-an-object", field, f"expected text, got {'nothing' if value is None else repr(value)}")]
    assert isinstance(version, str)
    group, _, number = version.rpartition("/")
    named = GroupKind(group, str(name))
    kind = catalogue.find(named)
    if kind is None:
        subject = ObjectRef(named, *_named(plain.get("metadata")))
        message = f"{version} {name} is not a kind that is supported: it has no effect"
        return _about(subject, [warning("unknown-kind", "kind", message)]) if is_mesh_group(group) else []
    if number not in kind.versions:
        subject = ObjectRef(named, *_named(plain.get("metadata")))
        message = f"{named} is read in {', '.join(kind.versions)}, not {number}"
        return _about(subject, [error("unknown-version", "apiVersion", message)])
    return kind


def _named(metadata: Any) -> tuple[str, str]:
    if not isinstance(metadata, dict):
        return "", ""
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _check_metadata(metadata: Metadata) -> Iterable[Problem]:
    if not metadata.name:
        yield error("missing-name", "metadata.name", "an object needs a name")
    elif len(metadata.name) > 253 or not _NAME.fullmatch(metadata.name):
        yield error(
            "bad-name", "metadata.name", f"{metadata.name!r}: lower-case letters, digits, - and . only, at most 253"
        )
    if metadata.namespace and (
        len(metadata.namespace) > 63 or "." in metadata.namespace or not _NAME.fullmatch(metadata.namespace)
    ):
        yield error(
            "bad-name",
            "metadata.namespace",
            f"{metadata.namespace!r}: lower-case letters, digits and - only, at most 63",
        )
    try:
        _utc(metadata.creation_timestamp)
    except (ValueError, OverflowError):  # the first and last days of the calendar have no UTC
        yield error(
            "bad-timestamp",
            "metadata.creationTimestamp",
            f"{metadata.creation_timestamp!r} is not like 2026-01-01T00:00:00Z",
        )


def _utc(timestamp: str) -> str:
    """Returns a timestamp in UTC to the second, so that text order is time order."""
    if not timestamp or _ZULU.fullmatch(timestamp):
        return timestamp
    moment = datetime.datetime.fromisoformat(timestamp)
    if moment.tzinfo is None:
        raise ValueError(timestamp)
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_fields(kind: AnyKind, plain: Mapping[str, Any]) -> Iterable[Problem]:
    """Yields problems of fields beside `spec`, for the kinds that are strict."""
    if issubclass(kind.struct, Lenient):
        return
    for field in plain.keys() - _FIELDS:
        yield error("unknown-field", str(field), "there is no such field")
    if isinstance(spec := plain.get("spec"), dict):
        for part in kind.parts:
            if part in spec:
                yield error("unknown-field", f"spec.{part}", "there is no such field")


def _body(kind: AnyKind, plain: Mapping[str, Any]) -> Any:
    """Returns what the kind's struct is made of; a `spec` that is no mapping as it is."""
    spec = plain.get("spec")
    if spec is not None and not isinstance(spec, dict):
        return spec
    parts = {part: plain[part] for part in kind.parts if plain.get(part) is not None}
    return {**(spec or {}), **parts, **kind.extra(plain)}


def _placed(kind: AnyKind, problems: Iterable[Problem]) -> Iterable[Problem]:
    """Yields problems of a struct with paths in the object that it was made of."""
    for problem in problems:
        part = re.split(r"[.\[]", problem.path, maxsplit=1)[0]
        yield problem if part in kind.parts else next(iter(below("spec", (problem,))))


def _about(subject: ObjectRef, problems: Iterable[Problem]) -> list[Problem]:
    return [msgspec.structs.replace(p, object=subject) for p in problems]
