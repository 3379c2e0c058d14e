"""The settings of the control plane.

Each setting is declared once, with its flag, environment variable, default and description. `Settings` has a section
for each part of the process, and a part receives only its own section. `parse` reads flags and environment variables.
`document` generates docs/settings.md.
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
    """The values of all flags and environment variables. Durations are in nanoseconds."""

    process: ProcessSettings = section(ProcessSettings(), "Process")
    ingest: IngestSettings = section(IngestSettings(), "Configuration sources")
    jwks: JwksSettings = section(JwksSettings(), "JSON Web Key Sets")
    kubernetes: KubernetesSettings = section(KubernetesSettings(), "Kubernetes")
    serve: ServeSettings = section(ServeSettings(), "xDS server")
    secure_port: SecurePortSettings = section(SecurePortSettings(), "Secure port")
    authentication: AuthenticationSettings = section(AuthenticationSettings(), "Authentication")
    authority: AuthoritySettings = section(AuthoritySettings(), "Certificate authority")
    webhook: WebhookSettings = section(WebhookSettings(), "Webhooks")
    debug: DebugSettings = section(DebugSettings(), "Debug pages and metrics")
    log: LogSettings = section(LogSettings(), "Logs")
    traces: TraceSettings = section(TraceSettings(), "Traces")
    mesh: MeshSettings = section(MeshSettings())
