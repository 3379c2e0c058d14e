"""The inputs of an injection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.proxy_config import ProxyConfig
from webhook.inject.annotations import NATIVE_SIDECAR
from webhook.inject.config import InjectorConfig
from webhook.inject.owner import WorkloadOwner

PROXY_ID = 1337


class InjectionRequest(NamedTuple):
    """A Pod and everything that its injection depends on.

    `environment` contains the proxy's environment variables from the webhook's path. With `native`, proxies are native
    sidecars, that is, restartable init containers. `uid` and `gid` are the proxy's user and group ID.
    """

    pod: dict[str, Any]
    owner: WorkloadOwner
    config: InjectorConfig
    mesh: MeshConfig
    proxy_config: ProxyConfig
    revision: str = ""
    environment: Mapping[str, str] = {}
    native: bool = False
    uid: int = PROXY_ID
    gid: int = PROXY_ID
    compliance_policy: str = ""
    default_templates: tuple[str, ...] = ()

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return the Pod's annotations."""
        return (self.pod.get("metadata") or {}).get("annotations") or {}

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the Pod's labels."""
        return (self.pod.get("metadata") or {}).get("labels") or {}

    @property
    def is_native(self) -> bool:
        """Return whether the proxy is a native sidecar. The Pod's annotation overrides the default."""
        annotation = self.annotations.get(NATIVE_SIDECAR)
        return {"true": True, "false": False}.get(annotation or "", self.native)
