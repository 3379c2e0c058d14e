"""What goes with an IstioOperator that is deleted."""

from __future__ import annotations

from collections.abc import Collection

from pilot.install.installation_labels import COMPONENT, OWNER, OWNER_NAMESPACE, REVISION, TAG
from pilot.install.prune import DEFINITION, list_installed
from pilot.install.uninstallation import is_shared, proxy_warnings
from pilot.kube.object_client import ResourceKey, resource_key
from pilot.operator.istio_operator_resource import IstioOperatorResource
from pilot.operator.operator_context import OperatorContext


async def leave(parts: OperatorContext, custom: IstioOperatorResource, pending: Collection[ResourceKey]) -> str:
    """Deletes what an IstioOperator has installed and no other one wants; returns "", or which proxies speak against it, and then nothing is
    deleted. Definitions stay, and with a revision what all revisions share. `pending` are objects that it was about to correct: their labels may
    not say yet that they are its own. KubeError where something cannot be deleted."""
    selector = f"{COMPONENT},{OWNER}={custom.name},{OWNER_NAMESPACE}={custom.namespace}"
    owned = found = await list_installed(parts.objects, selector, parts.namespaces)
    if custom.revision:
        found = [plain for plain in found if not is_shared(plain)]
        attached = await proxy_warnings(parts.objects, custom.revision) if found else []
        if attached:
            return attached[0]
    keep = parts.kept(custom.key)
    revisions = {
        plain["metadata"]["labels"].get(REVISION) for plain in found if plain["kind"] == "MutatingWebhookConfiguration"
    }
    for revision in sorted(filter(None, revisions)):
        found += await list_installed(parts.objects, f"{TAG},{REVISION}={revision}", ())
    for plain in found:
        if resource_key(plain) not in keep:
            await parts.objects.delete(resource_key(plain))
    for key in () if custom.revision else pending:
        if key not in keep and key.kind != DEFINITION:
            await parts.objects.delete(key)
    parts.hand_over([resource_key(plain) for plain in owned], custom.key)
    return ""
