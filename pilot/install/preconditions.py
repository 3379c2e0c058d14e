"""Preconditions of an installation: the version of Kubernetes, and the permissions of the user."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.install.install_plan import InstallPlan
from pilot.kube.object_client import ObjectClient, ResourceKey, UnknownKind, VersionedKind

MINIMUM = (1, 32)
"""The first version of Kubernetes that is supported."""
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})([.+-][\w.+-]*)?", re.ASCII)
_REVIEW = VersionedKind("authorization.k8s.io/v1", "SelfSubjectAccessReview")
_NAMESPACE = VersionedKind("v1", "Namespace")
_VERBS = ("create", "patch")
"""Permissions for server-side apply."""


async def check_version(objects: ObjectClient) -> list[Problem]:
    """Return a problem if the version of Kubernetes is unknown or not supported. Raise KubeError."""
    version = await objects.version()
    minimum = ".".join(map(str, MINIMUM))
    match = _VERSION.fullmatch(version)
    if match is None:
        text = f"the version of Kubernetes, {version!r}, is not understood; the minimum is {minimum}"
        return [Problem(code="kubernetes-version-unknown", message=text, severity=Severity.WARNING)]
    if (int(match[1]), int(match[2])) >= MINIMUM:
        return []
    return [Problem(code="kubernetes-too-old", message=f"Kubernetes {version} is older than {minimum}, the minimum")]


async def check_permissions(objects: ObjectClient, plan: InstallPlan) -> list[Problem]:
    """Return a problem for each kind of an installation that the user may not apply. Raise KubeError."""
    keys = plan.keys()
    places = {(key.kind, key.namespace) for key in keys} | {(_NAMESPACE, "")}
    problems = await asyncio.gather(*(_check_permission(objects, *place) for place in sorted(places)))
    return [problem for problem in problems if problem is not None]


async def _check_permission(objects: ObjectClient, kind: VersionedKind, namespace: str) -> Problem | None:
    group, _, version = kind.api_version.rpartition("/")
    try:
        plural = (await objects.collection(kind)).rpartition("/")[2]
    except UnknownKind:  # the installation defines it
        return None
    place = {"namespace": namespace, "group": group, "version": version, "resource": plural}
    reviews = [await _review(objects, {**place, "verb": verb}) for verb in _VERBS]
    missing = [verb for verb, reason in zip(_VERBS, reviews, strict=True) if reason is not None]
    if not missing:
        return None
    where = f" in the namespace {namespace}" if namespace else ""
    text = f"the user may not {' and '.join(missing)} {plural}{where}: {_reasons(reviews)}"
    return Problem(code="permission-missing", object=ObjectRef(GroupKind(group, kind.name), namespace), message=text)


async def _review(objects: ObjectClient, attributes: dict[str, str]) -> str | None:
    """Return why a request is denied, or None if it is allowed."""
    body = {"apiVersion": _REVIEW.api_version, "kind": _REVIEW.name, "spec": {"resourceAttributes": attributes}}
    status = (await objects.post(ResourceKey(_REVIEW, "", ""), body)).get("status", {})
    return None if status.get("allowed") else str(status.get("reason") or "permission denied")


def _reasons(reviews: Iterable[str | None]) -> str:
    return "; ".join(dict.fromkeys(filter(None, reviews)))
