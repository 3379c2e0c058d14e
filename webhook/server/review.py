"""Decodes AdmissionReview requests and encodes their responses.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#webhook-request-and-response
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

GROUP = "admission.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
MAX_LABEL_BYTES = 64 << 10
"""Maximum size in bytes of the labels of an injected Pod, encoded as JSON. The control plane matches them with the
selectors of ProxyConfig objects."""


class ReviewError(ValueError):
    """The request body is not a valid AdmissionReview."""


class GroupVersionKind(msgspec.Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(msgspec.Struct):
    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(msgspec.Struct, rename="camel"):
    """The fields of a request that the webhooks use. `object` is decoded on demand."""

    uid: str = ""
    kind: GroupVersionKind = msgspec.field(default_factory=GroupVersionKind)
    resource: GroupVersionResource = msgspec.field(default_factory=GroupVersionResource)
    name: str = ""
    namespace: str = ""
    operation: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool | None = None


class AdmissionReview(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


class AdmissionResponse(NamedTuple):
    """The response to a request. `patch` is a JSON patch, or empty if nothing changes."""

    allowed: bool
    message: str = ""
    patch: bytes = b""
    warnings: Sequence[str] = ()


class _Metadata(msgspec.Struct):
    namespace: str | None = None
    labels: msgspec.Raw = msgspec.Raw(b"null")


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


class PodHead(NamedTuple):
    """The fields of a Pod that are needed to determine its `PodFacts`. Absent fields are empty."""

    namespace: str
    labels: Mapping[str, str]
    node: str


_DECODER = msgspec.json.Decoder(AdmissionReview)
_POD_DECODER = msgspec.json.Decoder(_Pod)
_LABELS_DECODER = msgspec.json.Decoder(dict[str, str | None] | None)


def decode_review(body: bytes) -> AdmissionReview:
    """Decode an AdmissionReview. Raise ReviewError if it is invalid or contains no request."""
    try:
        review = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ReviewError(f"could not decode body: {error}") from error
    except RecursionError as error:
        raise ReviewError("could not decode body: it is nested too deeply") from error
    if review.kind != "AdmissionReview" or review.api_version not in VERSIONS:
        raise ReviewError(f'no kind "{review.kind}" is registered for version "{review.api_version}"')
    if review.request is None:
        raise ReviewError("the AdmissionReview has no request")
    return review


def decode_object(raw: msgspec.Raw) -> dict[str, Any]:
    """Decode the object in a request. Raise ReviewError if it is invalid."""
    try:
        plain = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ReviewError(f"could not decode object: {error}") from error
    except RecursionError as error:
        raise ReviewError("could not decode object: it is nested too deeply") from error
    if not isinstance(plain, dict):
        raise ReviewError("could not decode object: it is not a mapping")
    return plain


def decode_pod_head(raw: msgspec.Raw) -> PodHead:
    """Decode the head of the Pod in a request, without decoding the other fields. Raise ReviewError if the Pod is
    invalid, or if its labels are too large."""
    try:
        pod = _POD_DECODER.decode(raw)
        metadata, spec = pod.metadata or _Metadata(), pod.spec or _PodSpec()
        if len(memoryview(metadata.labels)) > MAX_LABEL_BYTES:
            raise ReviewError(f"metadata.labels: must be at most {MAX_LABEL_BYTES} bytes")
        labels = _LABELS_DECODER.decode(metadata.labels) or {}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ReviewError(f"could not decode object: {error}") from error
    present = {name: value for name, value in labels.items() if value is not None}
    return PodHead(metadata.namespace or "", present, spec.node_name or "")


def encode_answer(review: AdmissionReview | None, answer: AdmissionResponse) -> bytes:
    """Encode a response in the API version of the AdmissionReview. If the AdmissionReview is invalid, the version is
    v1."""
    response: dict[str, Any] = {
        "uid": review.request.uid if review is not None and review.request is not None else "",
        "allowed": answer.allowed,
    }
    if answer.patch:
        response["patch"] = base64.b64encode(answer.patch).decode()
        response["patchType"] = "JSONPatch"
    if answer.message:
        response["status"] = {"metadata": {}, "message": answer.message}
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    version = review.api_version if review is not None else VERSIONS[0]
    return msgspec.json.encode({"kind": "AdmissionReview", "apiVersion": version, "response": response})
