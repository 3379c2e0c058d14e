"""What goes with an installation: its objects by their labels, and what would be left without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pilot.install.diagnosis import POD
from pilot.install.injectors import is_injector, revision_of, tag_of
from pilot.install.installation_labels import COMPONENT, REVISION, TAG, OperatorOwner
from pilot.install.prune import DEFINITION, list_installed
from pilot.kube.object_client import ObjectClient, ResourceKey, resource_key

Plain = dict[str, Any]
_BASE = "Base"


class Uninstallation(NamedTuple):
    """What an uninstallation would delete, in order: `warnings` are what somebody may want to think about before."""

    objects: tuple[Plain, ...]
    warnings: tuple[str, ...]

    @property
    def keys(self) -> list[ResourceKey]:
        """Returns which objects they are."""
        return [resource_key(plain) for plain in self.objects]


async def uninstallation_of_revision(objects: ObjectClient, revision: str) -> Uninstallation:
    """Returns what goes with a revision: everything of it but what all revisions share, and the tags that would point nowhere."""
    found = await list_installed(objects, f"{COMPONENT},{REVISION}={revision}")
    found = [plain for plain in found if not is_shared(plain)]
    warnings = [*_tags(found), *await proxy_warnings(objects, revision), *_gateways(found)]
    return Uninstallation(tuple(found), tuple(warnings))


async def uninstallation_of_owner(
    objects: ObjectClient, owner: OperatorOwner, namespaces: Sequence[str] | None = None
) -> Uninstallation:
    """Returns what goes with an IstioOperator; what all revisions share stays."""
    found = await list_installed(objects, owner.selector(), namespaces)
    tags = (
        await list_installed(objects, f"{TAG},{REVISION}={owner.revision}", namespaces)
        if any(map(is_injector, found))
        else []
    )
    there = {resource_key(plain) for plain in found}
    found = [plain for plain in found if not is_shared(plain)] + [
        plain for plain in tags if resource_key(plain) not in there
    ]
    proxies = (
        await proxy_warnings(objects, owner.revision) if any(_component(plain) == "Pilot" for plain in found) else []
    )
    return Uninstallation(tuple(found), (*_tags(found), *proxies, *_gateways(found)))


async def uninstallation_of_everything(objects: ObjectClient) -> Uninstallation:
    """Returns everything that any installation has made, definitions and with them all configuration included."""
    found = await list_installed(objects, COMPONENT, kinds=(DEFINITION,))
    definitions = [plain for plain in found if plain["kind"] == DEFINITION.name]
    warnings = ["everything of every revision goes"]
    if definitions:
        warnings.append(
            f"{len(definitions)} CustomResourceDefinitions go, and all configuration of these kinds with them"
        )
    return Uninstallation(tuple(found), (*warnings, *_gateways(found)))


async def delete(objects: ObjectClient, leaving: Uninstallation) -> list[ResourceKey]:
    """Deletes what leaves; returns what was there still."""
    return [key for key in leaving.keys if await objects.delete(key)]


def _component(plain: Plain) -> str:
    return str(plain["metadata"]["labels"].get(COMPONENT, ""))


def is_shared(plain: Plain) -> bool:
    """Returns whether all revisions share an object; webhooks that nobody would answer must go."""
    return _component(plain) == _BASE and not plain["kind"].endswith("WebhookConfiguration")


def _tags(found: Sequence[Plain]) -> list[str]:
    tags = sorted({tag_of(plain) for plain in found if tag_of(plain)})
    return [f"tags that point at it go with it: {', '.join(tags)}"] if tags else []


def _gateways(found: Sequence[Plain]) -> list[str]:
    names = [
        str(resource_key(plain))
        for plain in found
        if plain["kind"] == "Deployment" and _component(plain).endswith("Gateways")
    ]
    return [f"gateways go: {', '.join(names)}"] if names else []


async def proxy_warnings(objects: ObjectClient, revision: str) -> list[str]:
    """Returns a warning where pods have proxies of a revision; gateways of the installation itself do not count."""
    pods = [
        pod
        for pod in await objects.list(POD)
        if _injected_by(pod) == revision and COMPONENT not in (pod["metadata"].get("labels") or {})
    ]
    if not pods:
        return []
    named = ", ".join(sorted({f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}" for pod in pods})[:5])
    more = f" and {len(pods) - 5} more" if len(pods) > 5 else ""
    return [f"{len(pods)} proxies are configured by revision {revision}: {named}{more}"]


def _injected_by(pod: Plain) -> str | None:
    annotations = pod["metadata"].get("annotations") or {}
    return annotations.get(REVISION) if "sidecar.istio.io/status" in annotations else None


def revisions(there: Sequence[Plain]) -> list[str]:
    """Returns the revisions that configurations of injection webhooks are of."""
    return sorted({revision_of(plain) for plain in there if is_injector(plain) and not tag_of(plain)})
