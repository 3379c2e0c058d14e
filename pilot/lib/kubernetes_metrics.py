"""What is counted of reading and writing API servers."""

from __future__ import annotations

from typing import Literal

from pilot.lib.series import Series

Registration = Literal["success", "updates", "unregister", "deletes", "errors"]


class KubernetesMetrics:
    """Observes what happens between this process and API servers."""

    def __init__(self, series: Series) -> None:
        self._at = series.at

    def sync_failed(self, cluster: str) -> None:
        """A collection of a cluster could not be followed; it will be tried again."""
        self._at("controller_sync_errors_total", cluster).inc()

    def webhook_patched(self, name: str) -> None:
        """The roots are written into the webhook configurations of that kind."""
        self._at("webhook_patch_attempts_total", name).inc()

    def webhook_retried(self, name: str) -> None:
        """A webhook configuration is to be written again, because it could not be."""
        self._at("webhook_patch_retries_total", name).inc()

    def webhook_failed(self, name: str, reason: str) -> None:
        """A webhook configuration could not be written."""
        self._at("webhook_patch_failures_total", name, reason).inc()

    def validation_updated(self) -> None:
        """The configuration of validating webhooks was written."""
        self._at("galley_validation_config_updates").inc()

    def validation_update_failed(self, reason: str) -> None:
        """The configuration of validating webhooks could not be written; `reason` as API servers say it."""
        self._at("galley_validation_config_update_error", reason).inc()

    def registered(self, what: Registration) -> None:
        """A workload registered itself, came back, left, or could not do so."""
        self._at(f"auto_registration_{what}_total").inc()
