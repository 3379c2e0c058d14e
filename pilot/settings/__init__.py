"""Every setting of the process, declared once: flag, environment variable, default and one sentence.

`Settings` holds a section for each part of the process, and each part is given its section, never the whole. `parse` reads flags and
environment, `document` writes docs/settings.md.
"""

# ruff: noqa: RUF009 (the values of section() are immutable)
from __future__ import annotations

import dataclasses

from pilot.settings.declaration import section
from pilot.settings.kubernetes import KubernetesSettings
from pilot.settings.mesh import MeshSettings
from pilot.settings.process import (
    DebugSettings,
    IngestSettings,
    JwksSettings,
    LogSettings,
    ProcessSettings,
    ServeSettings,
    TraceSettings,
)
from pilot.settings.security import AuthenticationSettings, AuthoritySettings, SecurePortSettings
from pilot.settings.webhook import WebhookSettings


@dataclasses.dataclass(frozen=True)
class Settings:
    """Holds what flags and environment say. Durations are nanoseconds, as everywhere."""

    process: ProcessSettings = section(ProcessSettings(), "Process")
    ingest: IngestSettings = section(IngestSettings(), "Configuration sources")
    jwks: JwksSettings = section(JwksSettings(), "Key sets of issuers")
    kubernetes: KubernetesSettings = section(KubernetesSettings(), "Kubernetes")
    serve: ServeSettings = section(ServeSettings(), "Serving xDS")
    secure_port: SecurePortSettings = section(SecurePortSettings(), "The port with TLS")
    authentication: AuthenticationSettings = section(AuthenticationSettings(), "Who callers are")
    authority: AuthoritySettings = section(AuthoritySettings(), "Certificate authority")
    webhook: WebhookSettings = section(WebhookSettings(), "Webhooks")
    debug: DebugSettings = section(DebugSettings(), "Debug pages and metrics")
    log: LogSettings = section(LogSettings(), "Logs")
    traces: TraceSettings = section(TraceSettings(), "Traces")
    mesh: MeshSettings = section(MeshSettings())
