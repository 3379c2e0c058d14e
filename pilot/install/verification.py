"""Whether what is in a cluster is what a plan says, and has come up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pilot.install.injectors import VALIDATING, deactivated, is_injector, revision_of, tag_of
from pilot.install.install_plan import InstallPlan
from pilot.install.installation_labels import COMPONENT, DEFAULT, REVISION
from pilot.install.object_readiness import unready_reason
from pilot.install.prune import DEFINITION, list_installed
from pilot.install.tag_webhooks import list_injectors, with_existing_policies
from pilot.kube.errors import KubeError
from pilot.kube.object_client import ObjectClient, ResourceKey, resource_key

Plain = dict[str, Any]
_OF_SERVER = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink")


class ObjectCheck(NamedTuple):
    """An object that was looked at; `wrong` is "" where it is as it should be."""

    key: ResourceKey
    wrong: str


async def verify_plan(objects: ObjectClient, plan: InstallPlan) -> list[ObjectCheck]:
    """Returns every object of a plan with what is wrong with it. `objects` must be a dry run: the server is asked what applying would change."""
    tagged = any(tag_of(plain) == DEFAULT for plain in await list_injectors(objects))
    return [await _check(objects, plain, tagged) for step in plan.steps for plain in step.objects]


async def _check(objects: ObjectClient, plain: Plain, tagged: bool) -> ObjectCheck:
    key = resource_key(plain)
    try:
        there = await objects.get(key)
        if there is None:
            return ObjectCheck(key, "it is not there")
        if key.kind == VALIDATING:
            plain = with_existing_policies(plain, there)
        if tagged and is_injector(plain) and not tag_of(plain) and revision_of(plain) == DEFAULT:
            plain = deactivated(plain)
        would = await objects.apply(plain)
    except KubeError as error:
        return ObjectCheck(key, str(error))
    if differing := next(_differing(_comparable(there), _comparable(would), ""), ""):
        return ObjectCheck(key, f"{differing} is not as it would be installed")
    return ObjectCheck(key, unready_reason(there))


async def verify_revision(objects: ObjectClient, revision: str) -> list[ObjectCheck]:
    """Returns every object that is labelled as one of a revision with what it lacks."""
    found = await list_installed(objects, f"{COMPONENT},{REVISION}={revision}", kinds=(DEFINITION,))
    return [ObjectCheck(resource_key(plain), unready_reason(plain)) for plain in found]


def _comparable(plain: Plain) -> Plain:
    metadata = {key: value for key, value in plain["metadata"].items() if key not in _OF_SERVER}
    return {
        **{key: value for key, value in plain.items() if key not in ("status", "apiVersion", "kind")},
        "metadata": metadata,
    }


def _differing(one: Any, other: Any, path: str) -> Iterator[str]:
    """Yields the paths at which two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differing(one.get(key), other.get(key), f"{path}.{key}" if path else key)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (mine, others) in enumerate(zip(one, other, strict=True)):
            yield from _differing(mine, others, f"{path}[{index}]")
    elif one != other:
        yield path
