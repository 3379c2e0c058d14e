"""Revision tags: additional names for revisions, which labels on namespaces can refer to.

A tag is a configuration of injection webhooks, and a Service that stores the revision for readers without permission to
list webhooks. The tag `default` applies to namespaces and pods that select no revision. It also has a validating
webhook.
"""

from __future__ import annotations

from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from deploy.chart.chart import installation_folder, read_chart
from deploy.chart.render import render
from pilot.install.injectors import MUTATING, VALIDATING, deactivated, is_injector, revision_of, tag_of
from pilot.install.installation_labels import DEFAULT, NOT_PRUNED, REVISION, TAG
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind

Plain = dict[str, Any]
NAMESPACE, SERVICE = VersionedKind("v1", "Namespace"), VersionedKind("v1", "Service")
_VALIDATOR = "istiod-default-validator"


class TagError(Exception):
    """A tag cannot be set or removed. The message is for the user."""


class RevisionTag(NamedTuple):
    """A tag to set.

    `system` is the namespace of the control plane. `name` is the name of the webhook configuration. If it is "", the
    chart determines the name. With `everywhere`, the tag `default` also injects into namespaces without injection
    labels.
    """

    tag: str
    revision: str
    system: str
    name: str = ""
    everywhere: bool = False


async def list_injectors(objects: ObjectClient) -> list[Plain]:
    """Return all configurations of injection webhooks in a cluster."""
    return [plain for plain in await objects.list(MUTATING) if is_injector(plain)]


async def build_tag_objects(
    objects: ObjectClient, tag: RevisionTag, package: Traversable | None = None, overwrite: bool = True
) -> list[Plain]:
    """Return the objects of a tag.

    Raises TagError if the revision is not installed, if the tag has the name of a revision, or if the tag exists and
    must not be overwritten.
    """
    injectors = await list_injectors(objects)
    of_revision = [plain for plain in injectors if not tag_of(plain) and revision_of(plain) == tag.revision]
    if not of_revision:
        revisions = sorted({revision_of(plain) for plain in injectors if not tag_of(plain)})
        raise TagError(
            f"revision {tag.revision} is not installed; installed revisions: {', '.join(revisions) or 'none'}"
        )
    if tag.tag != DEFAULT and any(revision_of(plain) == tag.tag and not tag_of(plain) for plain in injectors):
        raise TagError(f"{tag.tag} is the name of a revision; choose another name for the tag")
    existing = [plain for plain in injectors if tag_of(plain) == tag.tag]
    if existing and not overwrite:
        raise TagError(
            f"tag {tag.tag} already points to revision {revision_of(existing[0])}; use --overwrite to change it"
        )
    folder = package or installation_folder()
    services = await objects.list(SERVICE, f"app=istiod,{REVISION}={tag.revision},!{TAG}", tag.system)
    tag_objects = [_build_injector(tag, of_revision[0], folder), _build_service(tag, services, folder)]
    if tag.tag == DEFAULT:
        tag_objects.append(_build_validator(tag, await objects.get(ResourceKey(VALIDATING, "", _VALIDATOR)), folder))
    return tag_objects


def _chart_values(tag: RevisionTag) -> Plain:
    return {
        "revision": "" if tag.revision == DEFAULT else tag.revision,
        "revisionTags": [tag.tag],
        "sidecarInjectorWebhook": {"enableNamespacesByDefault": tag.everywhere},
        "global": {"istioNamespace": tag.system},
    }


def _build_service(tag: RevisionTag, revision_services: list[Plain], folder: Traversable) -> Plain:
    """Return the Service of a tag. Its ports are those of the revision's Service."""
    chart = read_chart(folder / "charts" / "istiod")
    rendered = render(chart, _chart_values(tag), tag.system, only=("templates/service.yaml",))
    service = next(plain for plain in rendered if plain["kind"] == "Service" and tag_of(plain) == tag.tag)
    labels = {**service["metadata"]["labels"], NOT_PRUNED: "true"}
    ports = [
        {key: value for key, value in port.items() if key != "nodePort"}
        for existing in revision_services[:1]
        for port in existing["spec"].get("ports") or ()
    ]
    return {
        **service,
        "metadata": {**service["metadata"], "labels": labels},
        "spec": {**service["spec"], **({"ports": ports} if ports else {})},
    }


def _build_injector(tag: RevisionTag, revision_injector: Plain, folder: Traversable) -> Plain:
    """Return the webhook configuration of a tag. Its webhooks are those of the revision, with selectors for the tag."""
    chart = read_chart(folder / "charts" / "istiod")
    rendered = render(chart, _chart_values(tag), tag.system, only=("templates/mutatingwebhook.yaml",))
    injector = next(plain for plain in rendered if is_injector(plain) and tag_of(plain) == tag.tag)
    webhook_fields = {
        key: value
        for key, value in revision_injector["webhooks"][0].items()
        if key not in ("name", "namespaceSelector", "objectSelector")
    }
    webhooks = [{**webhook, **webhook_fields} for webhook in injector["webhooks"]]
    labels = {**injector["metadata"]["labels"], NOT_PRUNED: "true"}
    annotations = revision_injector["metadata"].get("annotations")
    name = tag.name or injector["metadata"]["name"]
    return {
        **injector,
        "metadata": {"name": name, "labels": labels, **({"annotations": annotations} if annotations else {})},
        "webhooks": webhooks,
    }


def _build_validator(tag: RevisionTag, existing: Plain | None, folder: Traversable) -> Plain:
    values: Plain = {"defaultRevision": tag.revision, "global": {"istioNamespace": tag.system}}
    rendered = render(
        read_chart(folder / "charts" / "base"), values, tag.system, only=("templates/validatingwebhook.yaml",)
    )
    validator = next(plain for plain in rendered if plain["metadata"]["name"] == _VALIDATOR)
    labels = {**validator["metadata"]["labels"], NOT_PRUNED: "true", TAG: DEFAULT}
    return with_existing_policies({**validator, "metadata": {**validator["metadata"], "labels": labels}}, existing)


def with_existing_policies(plain: Plain, existing: Plain | None) -> Plain:
    """Return a validating webhook configuration with the failure policies of the existing configuration.

    The control plane changes them to Fail when it is ready, and an installation must not revert that.
    """
    policies = {webhook["name"]: webhook.get("failurePolicy") for webhook in (existing or {}).get("webhooks") or ()}
    webhooks = [
        {**w, **({"failurePolicy": policies[w["name"]]} if policies.get(w["name"]) else {})}
        for w in plain.get("webhooks") or ()
    ]
    return {**plain, "webhooks": webhooks}


async def apply_tag(objects: ObjectClient, tag_objects: list[Plain]) -> None:
    """Apply the objects of a tag.

    The tag `default` deactivates the webhooks of the revision `default`, which it replaces.
    """
    for plain in tag_objects:
        await objects.apply(plain)
    if tag_of(tag_objects[0]) == DEFAULT:
        for plain in await list_injectors(objects):
            if not tag_of(plain) and revision_of(plain) == DEFAULT:
                await objects.apply(deactivated(reapplicable_part(plain)))


def reapplicable_part(plain: Plain) -> Plain:
    """Return a webhook configuration without the fields that the API server sets."""
    metadata = {key: value for key, value in plain["metadata"].items() if key in ("name", "labels", "annotations")}
    return {
        "apiVersion": plain["apiVersion"],
        "kind": plain["kind"],
        "metadata": metadata,
        "webhooks": plain.get("webhooks") or [],
    }


async def remove_tag(objects: ObjectClient, tag: str) -> list[ResourceKey]:
    """Delete the objects of a tag and return their keys. Raises TagError if there is no such tag."""
    keys = [
        ResourceKey(kind, plain["metadata"].get("namespace", ""), plain["metadata"]["name"])
        for kind in (MUTATING, VALIDATING, SERVICE)
        for plain in await objects.list(kind, f"{TAG}={tag}")
    ]
    if not keys:
        raise TagError(f"tag {tag} does not exist")
    for key in keys:
        await objects.delete(key)
    return keys


async def tagged_namespaces(objects: ObjectClient, tag: str) -> list[str]:
    """Return the namespaces that select a tag or a revision with this name."""
    namespaces = [
        plain["metadata"]["name"]
        for plain in await objects.list(NAMESPACE, f"{REVISION}={tag},istio-injection notin (enabled,disabled)")
    ]
    if tag == DEFAULT:
        namespaces += [plain["metadata"]["name"] for plain in await objects.list(NAMESPACE, "istio-injection=enabled")]
    return sorted(namespaces)
