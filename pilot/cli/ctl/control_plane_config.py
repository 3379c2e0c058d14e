"""The ConfigMaps of the control plane of a revision: its injection configuration and its mesh config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pilot.cli.ctl.analyzers.analyzer import MUTATING_WEBHOOKS, REVISION
from pilot.cli.ctl.client import CommandError
from pilot.install.installation_labels import DEFAULT, TAG
from pilot.kube.object_client import ResourceKey, VersionedKind

if TYPE_CHECKING:
    from pilot.kube.object_client import ObjectClient

INJECTOR, MESH = "istio-sidecar-injector", "istio"
"""The names of the ConfigMaps. Those of a revision end with its name."""
CONFIG_MAP = VersionedKind("v1", "ConfigMap")
_WEBHOOKS = VersionedKind(MUTATING_WEBHOOKS.api_version, MUTATING_WEBHOOKS.name)


class ControlPlaneConfig(NamedTuple):
    """The namespace and the revision of a control plane. The revision is "" if it has none."""

    system: str
    revision: str

    def key(self, name: str) -> ResourceKey:
        """Return the key of a ConfigMap. `name` is its name without the revision."""
        return ResourceKey(CONFIG_MAP, self.system, f"{name}-{self.revision}" if self.revision else name)


async def find_config(objects: ObjectClient, system: str, revision: str) -> ControlPlaneConfig:
    """Return the configuration of a revision, or of the one that the default tag selects if `revision` is ""."""
    chosen = revision or await _default_revision(objects)
    return ControlPlaneConfig(system, "" if chosen == DEFAULT else chosen)


async def get_existing(objects: ObjectClient, key: ResourceKey) -> dict[str, Any]:
    """Return an object. Raise CommandError if it does not exist."""
    plain: dict[str, Any] | None = await objects.get(key)
    if plain is None:
        raise CommandError(f"there is no {key}")
    return plain


async def _default_revision(objects: ObjectClient) -> str:
    webhooks = await objects.list(_WEBHOOKS, f"{TAG}={DEFAULT}")
    return next((str((one["metadata"].get("labels") or {}).get(REVISION, DEFAULT)) for one in webhooks), DEFAULT)
