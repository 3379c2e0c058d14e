"""Tags: further names of revisions, which namespaces can be labelled with. A tag is a configuration of injection webhooks; the tag `default` is
that of namespaces and pods that name no revision, and has a validating webhook too."""

from __future__ import annotations

from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from deploy.chart.chart import installation_folder, read_chart
from deploy.chart.render import render
from pilot.install.injectors import MUTATING, VALIDATING, deactivated, is_injector, revision_of, tag_of
from pilot.install.installation_labels import DEFAULT, NOT_PRUNED, REVISION, TAG
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind

Plain = dict[str, Any]
NAMESPACE = VersionedKind("v1", "Namespace")
_VALIDATOR = "istiod-default-validator"


class TagError(Exception):
    """A tag cannot be set or removed; the text says why."""


class RevisionTag(NamedTuple):
    """A tag to be set. `name` is that of its webhook configuration, "" for the usual one; `everywhere`: namespaces that say nothing are
    injected too, which concerns the tag `default` alone."""

    tag: str
    revision: str
    system: str
    name: str = ""
    everywhere: bool = False


async def list_injectors(objects: ObjectClient) -> list[Plain]:
    """Returns all configurations of injection webhooks of a cluster."""
    return [plain for plain in await objects.list(MUTATING) if is_injector(plain)]


async def build_tag_objects(
    objects: ObjectClient, wanted: RevisionTag, package: Traversable | None = None, taken: bool = True
) -> list[Plain]:
    """Returns the objects that a tag consists of. TagError where its revision is not installed, or where `taken` is false and there is one of
    that name."""
    there = await list_injectors(objects)
    own = [plain for plain in there if not tag_of(plain) and revision_of(plain) == wanted.revision]
    if not own:
        known = sorted({revision_of(plain) for plain in there if not tag_of(plain)})
        raise TagError(f"there is no revision {wanted.revision}; there are: {', '.join(known) or 'none'}")
    if wanted.tag != DEFAULT and any(revision_of(plain) == wanted.tag and not tag_of(plain) for plain in there):
        raise TagError(f"{wanted.tag} is the name of a revision; a tag needs another one")
    before = [plain for plain in there if tag_of(plain) == wanted.tag]
    if before and not taken:
        raise TagError(
            f"the tag {wanted.tag} is there already, of revision {revision_of(before[0])}: --overwrite moves it"
        )
    folder = package or installation_folder()
    made = [_injector(wanted, own[0], folder)]
    if wanted.tag == DEFAULT:
        made.append(_validator(wanted, await objects.get(ResourceKey(VALIDATING, "", _VALIDATOR)), folder))
    return made


def _injector(wanted: RevisionTag, own: Plain, folder: Traversable) -> Plain:
    """Returns the webhooks of a tag: called as those of its revision are, for pods that the tag selects."""
    values: Plain = {"revision": "" if wanted.revision == DEFAULT else wanted.revision, "revisionTags": [wanted.tag]}
    values |= {
        "sidecarInjectorWebhook": {"enableNamespacesByDefault": wanted.everywhere},
        "global": {"istioNamespace": wanted.system},
    }
    rendered = render(
        read_chart(folder / "charts" / "istiod"), values, wanted.system, only=("templates/mutatingwebhook.yaml",)
    )
    found = next(plain for plain in rendered if is_injector(plain) and tag_of(plain) == wanted.tag)
    model = {
        key: value
        for key, value in own["webhooks"][0].items()
        if key not in ("name", "namespaceSelector", "objectSelector")
    }
    webhooks = [{**webhook, **model} for webhook in found["webhooks"]]
    labels = {**found["metadata"]["labels"], NOT_PRUNED: "true"}
    annotations = own["metadata"].get("annotations")
    name = wanted.name or found["metadata"]["name"]
    return {
        **found,
        "metadata": {"name": name, "labels": labels, **({"annotations": annotations} if annotations else {})},
        "webhooks": webhooks,
    }


def _validator(wanted: RevisionTag, there: Plain | None, folder: Traversable) -> Plain:
    values: Plain = {"defaultRevision": wanted.revision, "global": {"istioNamespace": wanted.system}}
    rendered = render(
        read_chart(folder / "charts" / "base"), values, wanted.system, only=("templates/validatingwebhook.yaml",)
    )
    found = next(plain for plain in rendered if plain["metadata"]["name"] == _VALIDATOR)
    labels = {**found["metadata"]["labels"], NOT_PRUNED: "true", TAG: DEFAULT}
    return with_existing_policies({**found, "metadata": {**found["metadata"], "labels": labels}}, there)


def with_existing_policies(plain: Plain, there: Plain | None) -> Plain:
    """Returns a configuration of validating webhooks that fail where those that are there do: the control plane has them fail once it answers."""
    said = {webhook["name"]: webhook.get("failurePolicy") for webhook in (there or {}).get("webhooks") or ()}
    webhooks = [
        {**w, **({"failurePolicy": said[w["name"]]} if said.get(w["name"]) else {})}
        for w in plain.get("webhooks") or ()
    ]
    return {**plain, "webhooks": webhooks}


async def apply_tag(objects: ObjectClient, made: list[Plain]) -> None:
    """Writes the objects of a tag. Where it is `default`, the webhooks of the revision `default` end: the tag has taken their place."""
    for plain in made:
        await objects.apply(plain)
    if tag_of(made[0]) == DEFAULT:
        for plain in await list_injectors(objects):
            if not tag_of(plain) and revision_of(plain) == DEFAULT:
                await objects.apply(deactivated(reapplicable_part(plain)))


def reapplicable_part(plain: Plain) -> Plain:
    """Returns what of a configuration of webhooks can be applied again."""
    metadata = {key: value for key, value in plain["metadata"].items() if key in ("name", "labels", "annotations")}
    return {
        "apiVersion": plain["apiVersion"],
        "kind": plain["kind"],
        "metadata": metadata,
        "webhooks": plain.get("webhooks") or [],
    }


async def remove_tag(objects: ObjectClient, tag: str) -> list[ResourceKey]:
    """Deletes the objects of a tag; returns which they were. TagError where there are none."""
    found = [
        ResourceKey(kind, "", plain["metadata"]["name"])
        for kind in (MUTATING, VALIDATING)
        for plain in await objects.list(kind, f"{TAG}={tag}")
    ]
    if not found:
        raise TagError(f"there is no tag {tag}")
    for key in found:
        await objects.delete(key)
    return found


async def tagged_namespaces(objects: ObjectClient, tag: str) -> list[str]:
    """Returns the namespaces that a tag, or a revision of that name, is for."""
    found = [
        plain["metadata"]["name"]
        for plain in await objects.list(NAMESPACE, f"{REVISION}={tag},istio-injection notin (enabled,disabled)")
    ]
    if tag == DEFAULT:
        found += [plain["metadata"]["name"] for plain in await objects.list(NAMESPACE, "istio-injection=enabled")]
    return sorted(found)
