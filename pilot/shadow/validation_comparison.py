"""Compares which objects of a cluster the reference's validation webhook refuses with those that are refused here."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import aiohttp
import msgspec

from pilot.config.group_kind import GroupKind, is_istio
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.shadow.reference_server import ReferenceServer

_AT_ONCE = 8
"""Number of reviews that are requested at the same time, so that the reference is not overloaded."""
_TIMEOUT = aiohttp.ClientTimeout(total=30, connect=10)
_KEPT = ("name", "namespace", "labels", "annotations")
ACCEPTS = "accepts"


class ValidationDifference(NamedTuple):
    """An object that one side refuses, with what each says: "accepts" or the reason."""

    object: str
    reference: str
    pyistiod: str


class ValidationReport(NamedTuple):
    """The result. If no object was compared, `skipped` is the reason."""

    objects: int
    differences: list[ValidationDifference]
    skipped: str


class _Status(msgspec.Struct):
    message: str = ""


class _Response(msgspec.Struct):
    allowed: bool = False
    status: _Status | None = None


class _Review(msgspec.Struct):
    response: _Response


async def compare_validation(
    server: ReferenceServer, objects: Iterable[Mapping[str, Any]], problems: Iterable[Problem]
) -> ValidationReport:
    """Have the reference review all Istio objects. Reviews store nothing."""
    refused = {str(one.object): _reason(one) for one in problems if one.severity is Severity.ERROR}
    reviewed = [plain for plain in objects if is_istio(_group(plain))]
    gate, context = asyncio.Semaphore(_AT_ONCE), ssl.create_default_context()
    try:
        context.load_verify_locations(cadata=server.roots.decode())
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            reasons = await asyncio.gather(*(_review(session, gate, server, context, plain) for plain in reviewed))
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return ValidationReport(
            0, [], f"the webhook at {server.address} does not answer: {error or type(error).__name__}"
        )
    differences = [
        ValidationDifference(name, reason or ACCEPTS, refused.get(name) or ACCEPTS)
        for name, reason in zip(map(_name, reviewed), reasons, strict=True)
        if bool(reason) != (name in refused)
    ]
    return ValidationReport(len(reviewed), differences, "")


async def _review(
    session: aiohttp.ClientSession,
    gate: asyncio.Semaphore,
    server: ReferenceServer,
    context: ssl.SSLContext,
    plain: Mapping[str, Any],
) -> str:
    """Return the reason why the reference refuses an object, or "" if it accepts it."""
    metadata = plain["metadata"]
    group, _, version = plain["apiVersion"].rpartition("/")
    request = {
        "uid": "shadow",
        "kind": {"group": group, "version": version, "kind": plain["kind"]},
        "operation": "CREATE",
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "object": {**plain, "metadata": {key: metadata[key] for key in _KEPT if key in metadata}},
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    url = f"https://{server.address}/validate"
    async with gate, session.post(url, json=review, ssl=context, server_hostname=server.name) as answer:
        answer.raise_for_status()
        response = msgspec.json.decode(await answer.read(), type=_Review).response
    reason = response.status.message if response.status is not None else ""
    return "" if response.allowed else reason or "no reason"


def _group(plain: Mapping[str, Any]) -> str:
    return str(plain["apiVersion"].rpartition("/")[0])


def _name(plain: Mapping[str, Any]) -> str:
    metadata = plain["metadata"]
    return str(ObjectRef(GroupKind(_group(plain), plain["kind"]), metadata.get("namespace", ""), metadata["name"]))


def _reason(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message
