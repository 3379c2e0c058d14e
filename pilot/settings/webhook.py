"""Settings of the injection and validation webhooks."""

from __future__ import annotations

import dataclasses

from pilot.settings.declaration import setting


@dataclasses.dataclass(frozen=True)
class WebhookSettings:
    """Settings of the webhook port and the injector's configuration."""

    address: str = setting(
        ":15017",
        "Address for /inject and /validate over TLS. If empty, they are served without TLS at --httpAddr.",
        flag="httpsAddr",
    )
    client_roots_file: str = setting(
        "",
        "CA certificates for the client certificate of the API server. If set, the port of --httpsAddr accepts only "
        "clients with a certificate that one of them has issued.",
        env="PILOT_WEBHOOK_CLIENT_CA_FILE",
    )
    inject: bool = setting(True, "Serve /inject.", env="INJECT_ENABLED")
    folder: str = setting(
        "./var/lib/istio/inject",
        'Directory with the files "config" and "values", which configure the injector. If they do not exist, '
        "the ConfigMap istio-sidecar-injector (with the revision as a suffix) is used.",
        flag="injectionDir",
        env="PILOT_INJECTION_DIR",
    )
    native_sidecars: str = setting(
        "auto",
        "Run proxies as native sidecars: true, false, or auto, which enables them if every node's kubelet is "
        "version 1.33 or later.",
        env="ENABLE_NATIVE_SIDECARS",
    )
    platform: str = setting(
        "",
        "Platform of the cluster. On openshift, proxies run with the user IDs that are assigned to their namespace.",
        env="PLATFORM",
    )
