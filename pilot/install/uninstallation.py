"""Uninstallation: finds the objects to delete by their labels, and warns about the consequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pilot.install.diagnosis import POD
from pilot.install.injectors import is_injector, revision_of, tag_of
from pilot.install.installation_labels import COMPONENT, REVISION, ROOTS, TAG, OperatorOwner
from pilot.install.prune import DEFINITION, list_installed
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind, resource_key

Plain = dict[str, Any]
_BASE = "Base"
_CONFIG_MAP = VersionedKind("v1", "ConfigMap")


class Uninstallation(NamedTuple):
    """The objects to delete, in deletion order, and warnings that the user must confirm."""

    objects: tuple[Plain, ...]
    warnings: tuple[str, ...]

    @property
    def keys(self) -> list[ResourceKey]:
        """Return the keys of the objects."""
        return [resource_key(plain) for plain in self.objects]


async def uninstallation_of_revision(objects: ObjectClient, revision: str) -> Uninstallation:
    """Return the uninstallation of a revision and of the tags that point to it. Shared objects are not deleted."""
    installed = await list_installed(objects, f"{COMPONENT},{REVISION}={revision}")
    installed = [plain for plain in installed if not is_shared(plain)]
    warnings = [
        *_tag_warnings(installed),
        *await proxy_warnings(objects, revision),
        *_gateway_warnings(installed),
    ]
    return Uninstallation(tuple(installed), tuple(warnings))


async def uninstallation_of_owner(
    objects: ObjectClient, owner: OperatorOwner, namespaces: Sequence[str] | None = None
) -> Uninstallation:
    """Return the uninstallation of an IstioOperator. Shared objects are not deleted."""
    installed = await list_installed(objects, owner.selector(), namespaces)
    tags = (
        await list_installed(objects, f"{TAG},{REVISION}={owner.revision}", namespaces)
        if any(map(is_injector, installed))
        else []
    )
    keys = {resource_key(plain) for plain in installed}
    installed = [plain for plain in installed if not is_shared(plain)] + [
        plain for plain in tags if resource_key(plain) not in keys
    ]
    has_control_plane = any(_component(plain) == "Pilot" for plain in installed)
    proxies = await proxy_warnings(objects, owner.revision) if has_control_plane else []
    return Uninstallation(tuple(installed), (*_tag_warnings(installed), *proxies, *_gateway_warnings(installed)))


async def uninstallation_of_everything(objects: ObjectClient) -> Uninstallation:
    """Return the uninstallation of all revisions, the CustomResourceDefinitions, and the roots in all namespaces."""
    installed = await list_installed(objects, COMPONENT, kinds=(DEFINITION,))
    definitions = [plain for plain in installed if plain["kind"] == DEFINITION.name]
    warnings = ["all revisions will be uninstalled"]
    if definitions:
        warnings.append(
            f"{len(definitions)} CustomResourceDefinitions will be deleted, with all configuration of these kinds"
        )
    warnings += _gateway_warnings(installed)
    installed += await objects.list(_CONFIG_MAP, ROOTS)  # last, or the control plane writes them again
    return Uninstallation(tuple(installed), tuple(warnings))


async def delete_objects(objects: ObjectClient, uninstallation: Uninstallation) -> list[ResourceKey]:
    """Delete the objects and return the keys of those that existed."""
    return [key for key in uninstallation.keys if await objects.delete(key)]


def _component(plain: Plain) -> str:
    return str(plain["metadata"]["labels"].get(COMPONENT, ""))


def is_shared(plain: Plain) -> bool:
    """Return whether several revisions share an object.

    Webhooks are not shared, because they would block requests when their server no longer exists.
    """
    return _component(plain) == _BASE and not plain["kind"].endswith("WebhookConfiguration")


def _tag_warnings(installed: Sequence[Plain]) -> list[str]:
    tags = sorted({tag_of(plain) for plain in installed if tag_of(plain)})
    return [f"tags that point to this revision will be deleted: {', '.join(tags)}"] if tags else []


def _gateway_warnings(installed: Sequence[Plain]) -> list[str]:
    names = [
        str(resource_key(plain))
        for plain in installed
        if plain["kind"] == "Deployment" and _component(plain).endswith("Gateways")
    ]
    return [f"gateways will be deleted: {', '.join(names)}"] if names else []


async def proxy_warnings(objects: ObjectClient, revision: str) -> list[str]:
    """Return a warning if pods have proxies of a revision. Gateways that belong to the installation are ignored."""
    pods = [
        pod
        for pod in await objects.list(POD)
        if _injected_revision(pod) == revision and COMPONENT not in (pod["metadata"].get("labels") or {})
    ]
    if not pods:
        return []
    names = ", ".join(sorted({f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}" for pod in pods})[:5])
    more = f" and {len(pods) - 5} more" if len(pods) > 5 else ""
    return [f"proxies still connected to revision {revision}: {len(pods)} ({names}{more})"]


def _injected_revision(pod: Plain) -> str | None:
    annotations = pod["metadata"].get("annotations") or {}
    return annotations.get(REVISION) if "sidecar.istio.io/status" in annotations else None


def installed_revisions(objects: Sequence[Plain]) -> list[str]:
    """Return the revisions that configurations of injection webhooks belong to."""
    return sorted({revision_of(plain) for plain in objects if is_injector(plain) and not tag_of(plain)})
