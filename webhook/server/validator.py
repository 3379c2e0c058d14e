"""Answers requests to /validate. Configuration that the control plane would find invalid is rejected. For other
configuration, warnings are returned."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pilot.config.catalogue import Catalogue
from pilot.config.group_kind import GroupKind
from pilot.config.kind import AnyKind
from pilot.config.problem import Problem, Severity
from pilot.ingest.decode import decode_document
from webhook.server.review import AdmissionRequest, AdmissionResponse, ReviewError, decode_object

ALWAYS_REJECT = "internal.istio.io/webhook-always-reject"
Reason = Literal[
    "unsupported_operation", "yaml_decode_error", "unknown_type", "crd_conversion_error", "invalid_resource"
]
_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
_UNDECODABLE = frozenset(
    {"wrong-type", "unknown-field", "bad-enum", "bad-duration", "bad-base64", "out-of-range", "exclusive-fields"}
)


class Verdict(NamedTuple):
    """A response, and the reason for the rejection. The reason is "" if the object is allowed."""

    answer: AdmissionResponse
    reason: Reason | Literal[""] = ""


def validate(request: AdmissionRequest, catalogue: Catalogue) -> Verdict:
    """Return the verdict on an object. Only CREATE and UPDATE requests are validated. All others are allowed."""
    if request.operation not in ("CREATE", "UPDATE"):
        return Verdict(AdmissionResponse(True), "unsupported_operation")
    try:
        plain = decode_object(request.object)
    except ReviewError as error:
        return _refused("yaml_decode_error", f"cannot decode configuration: {error}")
    kind = catalogue.find(_kind_of(plain))
    if kind is None:
        return _refused("unknown_type", f"unrecognized type {plain.get('kind')}")
    if unknown := [str(key) for key in plain if key not in _FIELDS]:
        return _refused(
            "invalid_resource", f'unknown field "{unknown[0]}" on {plain.get("kind")} resource {_name(plain)}'
        )
    return _judged(plain, kind, catalogue)


def _judged(plain: dict[str, Any], kind: AnyKind, catalogue: Catalogue) -> Verdict:
    """Validate an object with the rules that the control plane applies to it, regardless of its API version."""
    group = f"{kind.id.group}/" if kind.id.group else ""
    decoded = decode_document(
        _named({**plain, "apiVersion": f"{group}{kind.versions[0]}"}), catalogue=catalogue, strict=True
    )
    errors = [p for p in decoded.problems if p.severity is Severity.ERROR]
    if errors:
        undecodable = all(p.code in _UNDECODABLE for p in errors)
        head = "error decoding configuration" if undecodable else "configuration is invalid"
        return _refused(
            "crd_conversion_error" if undecodable else "invalid_resource", f"{head}: {'; '.join(map(_shown, errors))}"
        )
    if ALWAYS_REJECT in ((plain.get("metadata") or {}).get("annotations") or {}):
        return _refused("invalid_resource", f"configuration is invalid: it has the annotation {ALWAYS_REJECT}")
    return Verdict(AdmissionResponse(True, warnings=[_shown(p) for p in decoded.problems]))


def _named(plain: dict[str, Any]) -> dict[str, Any]:
    """Return the object. If its name is to be generated, a placeholder is set as its name."""
    metadata = plain.get("metadata")
    if isinstance(metadata, dict) and not metadata.get("name") and metadata.get("generateName"):
        return {**plain, "metadata": {**metadata, "name": f"{str(metadata['generateName']).rstrip('-')}-generated"}}
    return plain


def _kind_of(plain: dict[str, Any]) -> GroupKind:
    return GroupKind(str(plain.get("apiVersion") or "").rpartition("/")[0], str(plain.get("kind") or ""))


def _name(plain: dict[str, Any]) -> str:
    metadata = plain.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"


def _shown(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message


def _refused(reason: Reason, message: str) -> Verdict:
    return Verdict(AdmissionResponse(False, message), reason)
