"""Verification: compares a cluster with a plan, and checks that the plan's objects are ready."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pilot.install.injectors import VALIDATING, deactivated, is_injector, revision_of, tag_of
from pilot.install.install_plan import InstallPlan
from pilot.install.installation_labels import COMPONENT, DEFAULT, REVISION
from pilot.install.object_readiness import unready_reason
from pilot.install.prune import DEFINITION, list_installed
from pilot.install.tag_webhooks import list_injectors, with_existing_policies
from pilot.kube.api_errors import KubeError
from pilot.kube.object_client import ObjectClient, ResourceKey, resource_key

Plain = dict[str, Any]
_SERVER_FIELDS = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink")


class ObjectCheck(NamedTuple):
    """The result for one object. `problem` is "" if the object is correct."""

    key: ResourceKey
    problem: str


class PlannedChange(NamedTuple):
    """An object that an installation changes, and the paths of the fields. Without paths, it is created."""

    key: ResourceKey
    paths: tuple[str, ...]


async def find_changes(objects: ObjectClient, plan: InstallPlan) -> list[PlannedChange]:
    """Return what applying a plan changes. The client must make only dry runs. Rejected objects are omitted."""
    has_default_tag = any(tag_of(plain) == DEFAULT for plain in await list_injectors(objects))
    changes = []
    for plain in (plain for step in plan.steps for plain in step.objects):
        key = resource_key(plain)
        try:
            existing = await objects.get(key)
            paths = await _changed_paths(objects, plain, existing, has_default_tag) if existing is not None else []
        except KubeError:
            continue
        if existing is None or paths:
            changes.append(PlannedChange(key, tuple(paths)))
    return changes


async def verify_plan(objects: ObjectClient, plan: InstallPlan) -> list[ObjectCheck]:
    """Check every object of a plan. The client must make only dry runs, because each object is applied to find
    differences."""
    has_default_tag = any(tag_of(plain) == DEFAULT for plain in await list_injectors(objects))
    return [await _check(objects, plain, has_default_tag) for step in plan.steps for plain in step.objects]


async def _check(objects: ObjectClient, plain: Plain, has_default_tag: bool) -> ObjectCheck:
    key = resource_key(plain)
    try:
        existing = await objects.get(key)
        if existing is None:
            return ObjectCheck(key, "not found")
        paths = await _changed_paths(objects, plain, existing, has_default_tag)
    except KubeError as error:
        return ObjectCheck(key, str(error))
    if paths:
        return ObjectCheck(key, f"{paths[0]} differs from the installation")
    return ObjectCheck(key, unready_reason(existing))


async def _changed_paths(objects: ObjectClient, plain: Plain, existing: Plain, has_default_tag: bool) -> list[str]:
    """Return the paths of the fields that applying an object changes."""
    if resource_key(plain).kind == VALIDATING:
        plain = with_existing_policies(plain, existing)
    if has_default_tag and is_injector(plain) and not tag_of(plain) and revision_of(plain) == DEFAULT:
        plain = deactivated(plain)
    return list(_differing_paths(_comparable(existing), _comparable(await objects.apply(plain)), ""))


async def verify_revision(objects: ObjectClient, revision: str) -> list[ObjectCheck]:
    """Check that every object with the label of a revision is ready."""
    installed = await list_installed(objects, f"{COMPONENT},{REVISION}={revision}", kinds=(DEFINITION,))
    return [ObjectCheck(resource_key(plain), unready_reason(plain)) for plain in installed]


def _comparable(plain: Plain) -> Plain:
    metadata = {key: value for key, value in plain["metadata"].items() if key not in _SERVER_FIELDS}
    return {
        **{key: value for key, value in plain.items() if key not in ("status", "apiVersion", "kind")},
        "metadata": metadata,
    }


def _differing_paths(one: Any, other: Any, path: str) -> Iterator[str]:
    """Yield the paths at which two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differing_paths(one.get(key), other.get(key), f"{path}.{key}" if path else key)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (item, other_item) in enumerate(zip(one, other, strict=True)):
            yield from _differing_paths(item, other_item, f"{path}[{index}]")
    elif one != other:
        yield path
