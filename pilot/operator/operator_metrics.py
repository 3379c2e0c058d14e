"""The operator's metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from pilot.lib.build_info import build_info

_PREFIX = "istio_install_operator"


class OperatorMetrics:
    """The metrics of one operator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciled = Counter(
            f"{_PREFIX}_reconcile_request",
            "Reconciliations of IstioOperators, by reason and result",
            ["reason", "result"],
            registry=self.registry,
        )
        self.corrected = Counter(
            f"{_PREFIX}_corrected_resource",
            "Corrections of installed objects that were changed or deleted",
            registry=self.registry,
        )
        self.operators = Gauge(f"{_PREFIX}_custom_resources", "Watched IstioOperators", registry=self.registry)
        Gauge(f"{_PREFIX}_version", "Version of the operator", ["version"], registry=self.registry).labels(
            build_info().version
        ).set(1)

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)
