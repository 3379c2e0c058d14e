"""What the operator counts, for Prometheus."""

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
            "Looks at IstioOperators, by why and what came of it",
            ["reason", "result"],
            registry=self.registry,
        )
        self.corrected = Counter(
            f"{_PREFIX}_corrected_resource", "Objects that others had changed or deleted", registry=self.registry
        )
        self.customs = Gauge(
            f"{_PREFIX}_custom_resources", "IstioOperators that are looked after", registry=self.registry
        )
        Gauge(f"{_PREFIX}_version", "Version of the operator", ["version"], registry=self.registry).labels(
            build_info().version
        ).set(1)

    def text(self) -> bytes:
        """Returns all of them as Prometheus reads them."""
        return generate_latest(self.registry)
