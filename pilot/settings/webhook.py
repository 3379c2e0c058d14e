"""Settings of the webhooks: injection and validation."""

from __future__ import annotations

import dataclasses

from pilot.settings.declaration import setting


@dataclasses.dataclass(frozen=True)
class WebhookSettings:
    """The port that the API server asks, and what is answered there."""

    address: str = setting(
        ":15017", "Address of /inject and /validate, with TLS; empty to have them at --httpAddr.", flag="httpsAddr"
    )
    inject: bool = setting(True, "Answer /inject.", env="INJECT_ENABLED")
    folder: str = setting(
        "./var/lib/istio/inject",
        "Folder with the injector's configuration: the files config and values. Without it the ConfigMap "
        "istio-sidecar-injector, with the revision, counts.",
        flag="injectionDir",
        env="PILOT_INJECTION_DIR",
    )
    native_sidecars: str = setting(
        "auto",
        "Proxies run as init containers that go on: true, false, or auto, where every node's kubelet is of 1.33 or later.",
        env="ENABLE_NATIVE_SIDECARS",
    )
    platform: str = setting(
        "", "Platform of the cluster; on openshift proxies run as the users that a namespace is given.", env="PLATFORM"
    )
