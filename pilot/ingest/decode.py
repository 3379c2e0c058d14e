"""Decodes plain data from YAML, JSON or an API server into objects, and reports problems."""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from pilot.config.base import Lenient
from pilot.config.catalogue import CATALOGUE, Catalogue, is_mesh_group
from pilot.config.group_kind import GroupKind
from pilot.config.kind import AnyKind, BaseKind
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY
from pilot.config.kubernetes.pod import OwnerReference
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.problem import LONGEST_FIELD, ObjectRef, Problem, Severity, about, below, error, has_errors, warning
from pilot.ingest import shape
from pilot.ingest.field_hints import MAX_SUGGESTIONS
from pilot.lib.regex import one_budget
from pilot.lib.suggestion import did_you_mean
from pilot.lib.text import cut

REVISION_LABEL = "istio.io/rev"
MAX_MANAGER = 128
"""Maximum length of the name of a field manager and of a UID, in characters."""
_READ_ANNOTATIONS = ("istio.io", "kubernetes.io/ingress.class", "openshift.io/sa.scc.")
_FIELDS = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_KUSTOMIZE_FIELDS = frozenset({"bases", "configMapGenerator", "patches", "patchesStrategicMerge", "resources"})
_ISTIO_OPERATOR = GroupKind("install.istio.io", "IstioOperator")
_MESH_CONFIG_FIELDS = frozenset(MeshConfig.__struct_encode_fields__)
_METADATA_FIELDS = frozenset(
    (
        *("annotations", "clusterName", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp"),
        *("finalizers", "generateName", "generation", "labels", "managedFields", "name", "namespace"),
        *("ownerReferences", "resourceVersion", "selfLink", "uid"),
    )
)
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


class ObjectVersion(NamedTuple):
    """The version of an object in an API server, which is not part of the object.

    generation: The generation, or 0 if the object is from another source.
    uid: The unique ID of the object, or "".
    manager: The client that was the last to write the specification, according to `managedFields`, or "".
    """

    generation: int = 0
    uid: str = ""
    manager: str = ""


UNVERSIONED = ObjectVersion()


class DocumentOrigin(NamedTuple):
    """The origin of documents.

    `cluster` is the cluster that the objects belong to. If `own` is false, it is a remote cluster. Its workloads and
    services are read, and its configuration has no effect.

    Configuration is ignored if its label istio.io/rev differs from `revision`. Built-in kinds belong to every revision.
    So do Gateways of the Gateway API, because their label may be a tag. Proxies that were deployed before the tag moved
    are served until they exit.
    """

    cluster: str = "Kubernetes"
    own: bool = True
    revision: str = ""


OWN = DocumentOrigin()


class Entry(NamedTuple):
    """An object, with the name of its table, its key and its version."""

    table: str
    key: ObjectKey | RegistryKey
    object: Object[Any]
    version: ObjectVersion = UNVERSIONED


class Decoded(NamedTuple):
    """The result of decoding a document.

    `refused` contains the rows of invalid objects that have a name. `total` is the number of objects in the document,
    of which `ignored` belong to kinds that a mesh does not use, or to other revisions.
    """

    entries: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()
    refused: tuple[Row, ...] = ()
    total: int = 0
    ignored: int = 0


def nowhere(_: str) -> int:
    return 0


def decode_document(
    plain: Any,
    file: str = "",
    line_of: Callable[[str], int] = nowhere,
    origin: DocumentOrigin = OWN,
    catalogue: Catalogue = CATALOGUE,
    strict: bool = False,
) -> Decoded:
    """Decode a document that contains an object, or a `List` of objects.

    `line_of` returns the line of a field path in the document, or 0 if it is unknown. Objects of other revisions (label
    istio.io/rev), and kinds that a mesh does not use, yield neither an entry nor a problem. Unknown fields are errors
    if `strict` is true. Otherwise, they are ignored with a warning, because they may belong to a newer version of the
    API.
    """
    entries: list[Entry] = []
    problems: list[Problem] = []
    refused: list[Row] = []
    total = ignored = 0
    for prefix, item in listed_objects(plain, ""):
        entry, item_problems, row = _decode(item, origin, catalogue, strict)
        total += 1
        ignored += entry is None and row is None and not item_problems
        for problem in item_problems:
            whole = _join(prefix, problem.path)
            path = problem.path if problem.object.name else whole  # only the path tells unnamed list items apart
            problems.append(msgspec.structs.replace(problem, path=path, file=file, line=line_of(whole)))
        if entry is not None:
            entries.append(entry)
        elif row is not None:
            refused.append(row)
    return Decoded(tuple(entries), tuple(problems), tuple(refused), total, ignored)


def listed_objects(plain: Any, prefix: str) -> Iterable[tuple[str, Any]]:
    """Yield the object in a document, or the objects of a `List`, each with its path in the document."""
    kind = plain.get("kind") if isinstance(plain, dict) else None
    if isinstance(kind, str) and kind.endswith("List") and isinstance(plain.get("items"), list):
        for index, item in enumerate(plain["items"]):
            if isinstance(item, dict) and kind != "List":  # items of a ServiceList may omit apiVersion and kind
                item = {"apiVersion": plain.get("apiVersion"), "kind": kind.removesuffix("List"), **item}
            yield from listed_objects(item, _join(prefix, f"items[{index}]"))
    else:
        yield prefix, plain


def _join(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path


def decode_object(kind: AnyKind, plain: Any, origin: DocumentOrigin, is_validated: bool = False) -> Decoded:
    """Decode an object of a given kind. The object's own `kind` field is ignored.

    If `is_validated` is true, the kind's rules have been applied already, and are not applied again.
    """
    entry, problems, row = _decode_as(kind, plain, origin, strict=False, is_validated=is_validated)
    return Decoded(
        (entry,) if entry is not None else (), tuple(problems), (row,) if entry is None and row is not None else ()
    )


def _decode(
    plain: Any, origin: DocumentOrigin, catalogue: Catalogue, strict: bool
) -> tuple[Entry | None, list[Problem], Row | None]:
    """Return the entry of an object, or the problems and row of an invalid object. Return neither if it is ignored."""
    kind = _identify(plain, catalogue, strict)
    return _decode_as(kind, plain, origin, strict) if isinstance(kind, BaseKind) else (None, kind, None)


def _decode_as(
    kind: AnyKind, plain: Any, origin: DocumentOrigin, strict: bool, is_validated: bool = False
) -> tuple[Entry | None, list[Problem], Row | None]:
    """Decode an object of a given kind. Return the same values as `_decode`."""
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
        return None, about(subject, [_remote(kind, origin.cluster)]), None
    key = kind.key(origin.cluster, namespace, metadata.name)
    if problems:
        has_key = not any(p.path in ("metadata", "metadata.name", "metadata.namespace") for p in problems)
        return None, about(subject, problems), (kind.table_name, key) if has_key else None
    body = _body(kind, plain)
    spec, wrong = shape.decode(body, kind.struct, strict)
    mismatches = list(_placed(kind, wrong)) if wrong else wrong
    unknown_metadata: list[Problem] = []
    if not issubclass(kind.struct, Lenient):
        mismatches[:0] = _check_fields(kind, plain, strict)
        unknown_metadata += _check_metadata_fields(plain["metadata"], strict)
    if has_errors(mismatches) or has_errors(unknown_metadata):
        return None, about(subject, [*mismatches, *unknown_metadata]), (kind.table_name, key)
    if mismatches:
        spec, consequences = kind.tighten(spec, [problem.path for problem in mismatches])
        mismatches = [*consequences, *mismatches]
    mismatches += unknown_metadata
    annotations = {k: v for k, v in metadata.annotations.items() if any(part in k for part in _READ_ANNOTATIONS)}
    decoded = Object(
        kind.id, namespace, metadata.name, spec, metadata.labels, annotations, _utc(metadata.creation_timestamp)
    )
    with one_budget():
        problems = about(subject, chain(mismatches, () if is_validated else kind.validate(decoded)))
    if has_errors(problems):
        return None, problems, (kind.table_name, key)
    return Entry(kind.table_name, key, decoded, _version(plain["metadata"])), problems, None


def _version(metadata: Mapping[str, Any]) -> ObjectVersion:
    """Return the version in the metadata of an object."""
    generation, uid = metadata.get("generation"), metadata.get("uid")
    if not isinstance(generation, int) or not isinstance(uid, str):
        return UNVERSIONED
    fields = metadata.get("managedFields")
    writes = [
        (str(one.get("time", "")), cut(str(one.get("manager", "")), MAX_MANAGER))
        for one in (fields if isinstance(fields, list) else ())
        if isinstance(one, dict) and not one.get("subresource")
    ]
    return ObjectVersion(generation, cut(uid, MAX_MANAGER), sys.intern(max(writes)[1]) if writes else "")


def _has_revisions(kind: AnyKind) -> bool:
    return not kind.is_built_in and kind.id != KUBERNETES_GATEWAY.id


def _remote(kind: AnyKind, cluster: str) -> Problem:
    message = f"{kind.id.name} has no effect in cluster {cluster}: configuration is read only from the local cluster"
    return warning("remote-configuration", "kind", message)


def _decode_metadata(plain: Any) -> tuple[Metadata, list[Problem]]:
    """Return the metadata and its problems. If the metadata is invalid, only the name and namespace are returned."""
    metadata, wrong = shape.decode(plain or {}, Metadata)
    if metadata is None:
        namespace, name = _identity(plain)
        return Metadata(name=name, namespace=namespace), list(below("metadata", wrong))
    return metadata, list(_check_metadata(metadata))


def _identify(plain: Any, catalogue: Catalogue, strict: bool) -> AnyKind | list[Problem]:
    """Return the kind of an object, or the problems if the kind is not supported."""
    if not isinstance(plain, dict):
        form = "; write objects as documents that --- separates, without -" if isinstance(plain, list) else ""
        return [error("not-an-object", "", f"expected an object with apiVersion, kind and metadata{form}")]
    version, name = plain.get("apiVersion"), plain.get("kind")
    for field, value in (("apiVersion", version), ("kind", name)):
        if not isinstance(value, str) or not value:
            return [error("not-an-object", field, _explain_type(plain, value))]
    assert isinstance(version, str)
    group, _, number = version.rpartition("/")
    group_kind = GroupKind(group, str(name))
    kind = catalogue.find(group_kind)
    if kind is None:
        subject = ObjectRef(group_kind, *_identity(plain.get("metadata")))
        return about(subject, _unknown_kind(group_kind, version, catalogue, strict))
    if number not in kind.versions:
        subject = ObjectRef(group_kind, *_identity(plain.get("metadata")))
        message = f"{group_kind} is supported in {', '.join(kind.versions)}, not {number}"
        return about(subject, [error("unknown-version", "apiVersion", message)])
    return kind


def _explain_type(plain: Mapping[str, Any], value: Any) -> str:
    """Return the message about an `apiVersion` or `kind` that is not a string."""
    if value is None and not plain.keys().isdisjoint(_KUSTOMIZE_FIELDS):
        return "this looks like a Kustomize file: render it first, for example with `kubectl kustomize`"
    if value is None and plain and plain.keys() <= _MESH_CONFIG_FIELDS:
        return (
            "this looks like a mesh config: pass it with --meshConfig, or to `pilotctl analyze` with --meshConfigFile"
        )
    return f"expected a string, got {'nothing' if value is None else repr(value)}"


def _unknown_kind(group_kind: GroupKind, version: str, catalogue: Catalogue, strict: bool) -> Iterable[Problem]:
    """Yield the problem of an unsupported kind. It is an error if `strict` is true and the kind is misspelt."""
    group, name = group_kind
    severity = Severity.ERROR if strict else Severity.WARNING
    if group_kind == _ISTIO_OPERATOR:
        message = "only the installer reads an IstioOperator; check it with `pilotctl manifest generate -f FILE`"
        yield warning("unknown-kind", "kind", message)
    elif others := _same_name(group_kind, catalogue):
        written = " or ".join(others)
        message = f"there is no {name} in {version}, so the object has no effect: write apiVersion: {written}"
        yield msgspec.structs.replace(warning("unknown-kind", "apiVersion", message), severity=severity)
    elif is_mesh_group(group):
        suggestion = did_you_mean(name, (kind.id.name for kind in catalogue if kind.id.group == group))
        problem = warning(
            "unknown-kind", "kind", f"{version} {name} is not a supported kind and has no effect{suggestion}"
        )
        yield msgspec.structs.replace(problem, severity=severity) if suggestion else problem
    elif suggestion := did_you_mean(group, {k.id.group for k in catalogue if k.id.name == name and not k.is_built_in}):
        message = f"{version} {name} is not a supported kind and has no effect{suggestion}"
        yield msgspec.structs.replace(warning("unknown-kind", "apiVersion", message), severity=severity)


def _same_name(group_kind: GroupKind, catalogue: Catalogue) -> list[str]:
    """Return the versions with the groups of kinds that have the name of a kind, whose own group is that of no API of
    another project."""
    group, name = group_kind
    if group not in ("", "istio.io") and not is_mesh_group(group):
        return []
    kinds = (kind for kind in catalogue if kind.id.name == name and not kind.is_built_in)
    return [f"{kind.id.group}/{kind.versions[0]}" for kind in kinds if kind.id.group]


def _identity(metadata: Any) -> tuple[str, str]:
    if not isinstance(metadata, dict):
        return "", ""
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _check_metadata(metadata: Metadata) -> Iterable[Problem]:
    if not metadata.name:
        yield error("missing-name", "metadata.name", "a name is required")
    elif len(metadata.name) > 253 or not _NAME.fullmatch(metadata.name):
        hint = "; this looks like a Helm template: render it first" if "{{" in metadata.name else ""
        message = f"{metadata.name!r}: must be at most 253 lower-case letters, digits, - and .{hint}"
        yield error("bad-name", "metadata.name", message)
    if metadata.namespace and (
        len(metadata.namespace) > 63 or "." in metadata.namespace or not _NAME.fullmatch(metadata.namespace)
    ):
        yield error(
            "bad-name",
            "metadata.namespace",
            f"{metadata.namespace!r}: must be at most 63 lower-case letters, digits and -",
        )
    try:
        _utc(metadata.creation_timestamp)
    except (ValueError, OverflowError):  # the first and last days of the calendar cannot be converted to UTC
        yield error(
            "bad-timestamp",
            "metadata.creationTimestamp",
            f"{metadata.creation_timestamp!r} is not a timestamp such as 2026-01-01T00:00:00Z",
        )


def _utc(timestamp: str) -> str:
    """Return a timestamp in UTC, truncated to seconds, so that strings sort by time."""
    if not timestamp or _ZULU.fullmatch(timestamp):
        return timestamp
    moment = datetime.datetime.fromisoformat(timestamp)
    if moment.tzinfo is None:
        raise ValueError(timestamp)
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_fields(kind: AnyKind, plain: Mapping[str, Any], strict: bool) -> Iterable[Problem]:
    """Return the problems of unknown fields outside `spec`, and of parts inside `spec`."""
    spec = plain.get("spec")
    unknown = [] if _FIELDS.issuperset(plain) else [*(plain.keys() - _FIELDS)]
    if kind.parts and isinstance(spec, dict):
        unknown += [f"spec.{part}" for part in kind.parts if part in spec]
    return _unknown_fields(kind, unknown, strict) if unknown else ()


def _unknown_fields(kind: AnyKind, unknown: Sequence[Any], strict: bool) -> Iterable[Problem]:
    for count, field in enumerate(unknown[: shape.MAX_MISMATCHES]):
        problem = shape.unknown_field(str(field), strict or len(unknown) > shape.MAX_MISMATCHES)
        names = (*_FIELDS, *kind.parts) if count < MAX_SUGGESTIONS else ()
        suggestion = did_you_mean(str(field), names)
        if not suggestion and field in kind.struct.__struct_encode_fields__:
            suggestion = f"; did you mean spec.{field}? Check the indentation"
        yield msgspec.structs.replace(problem, message=problem.message + suggestion)


def _check_metadata_fields(metadata: Mapping[str, Any], strict: bool) -> Iterable[Problem]:
    """Return the problems of unknown fields in `metadata`."""
    return () if _METADATA_FIELDS.issuperset(metadata) else _unknown_metadata_fields(metadata, strict)


def _unknown_metadata_fields(metadata: Mapping[str, Any], strict: bool) -> Iterable[Problem]:
    unknown = metadata.keys() - _METADATA_FIELDS
    for field in sorted(map(str, unknown))[:MAX_SUGGESTIONS]:
        problem = shape.unknown_field(f"metadata.{cut(field, LONGEST_FIELD)}", strict)
        suggestion = did_you_mean(field, _METADATA_FIELDS)
        yield msgspec.structs.replace(problem, message=problem.message + suggestion)


def _body(kind: AnyKind, plain: Mapping[str, Any]) -> Any:
    """Return the input for the kind's struct: the fields of `spec`, and the object's parts.

    A `spec` that is not a mapping is returned unchanged.
    """
    spec = plain.get("spec")
    if spec is not None and not isinstance(spec, dict):
        return spec
    parts = {part: plain[part] for part in kind.parts if plain.get(part) is not None}
    fields = spec or {}
    if not fields.keys().isdisjoint(kind.parts):
        fields = {name: value for name, value in fields.items() if name not in kind.parts}
    return {**fields, **parts, **kind.extra(plain)}


def _placed(kind: AnyKind, problems: Iterable[Problem]) -> Iterable[Problem]:
    """Yield the problems of a struct, with field paths relative to the whole object."""
    for problem in problems:
        part = re.split(r"[.\[]", problem.path, maxsplit=1)[0]
        yield problem if part in kind.parts else next(iter(below("spec", (problem,))))
