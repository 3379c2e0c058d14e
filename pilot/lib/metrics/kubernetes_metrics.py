"""Metrics of reads from and writes to API servers."""

from __future__ import annotations

from typing import Literal

from pilot.lib.metrics.series import Series

Registration = Literal["success", "updates", "unregister", "deletes", "errors"]


class KubernetesMetrics:
    """Counters for events between this process and API servers."""

    def __init__(self, series: Series) -> None:
        self._at = series.at

    def sync_failed(self, cluster: str) -> None:
        """Count a failure to list or watch a collection. The operation is retried."""
        self._at("controller_sync_errors_total", cluster).inc()

    def webhook_patched(self, name: str) -> None:
        """Count an attempt to write the root certificates to a webhook configuration."""
        self._at("webhook_patch_attempts_total", name).inc()

    def webhook_retried(self, name: str) -> None:
        """Count a retry of a write to a webhook configuration."""
        self._at("webhook_patch_retries_total", name).inc()

    def webhook_failed(self, name: str, reason: str) -> None:
        """Count a webhook configuration that could not be written."""
        self._at("webhook_patch_failures_total", name, reason).inc()

    def validation_updated(self) -> None:
        """Count an update of the validating webhook configuration."""
        self._at("galley_validation_config_updates").inc()

    def validation_update_failed(self, reason: str) -> None:
        """Count a failed update of the validating webhook configuration. `reason` is from the API server."""
        self._at("galley_validation_config_update_error", reason).inc()

    def registered(self, event: Registration) -> None:
        """Count an event of automatic workload registration."""
        self._at(f"auto_registration_{event}_total").inc()
