"""Tests of the metrics of the operator."""

from __future__ import annotations

from pilot.lib.build_info import build_info
from pilot.operator.operator_metrics import OperatorMetrics

VERSION = build_info().version


def test_operator_metrics() -> None:
    metrics = OperatorMetrics()
    metrics.reconciled.labels("install", "done").inc()
    metrics.corrected.inc(2)
    metrics.operators.set(3)
    lines = [
        line
        for line in metrics.render().decode().splitlines()
        if not line.startswith("# TYPE") and "_created" not in line
    ]
    assert lines == [
        "# HELP istio_install_operator_reconcile_request_total Reconciliations of IstioOperators, by reason and result",
        'istio_install_operator_reconcile_request_total{reason="install",result="done"} 1.0',
        "# HELP istio_install_operator_corrected_resource_total Corrections of installed objects that were changed or deleted",
        "istio_install_operator_corrected_resource_total 2.0",
        "# HELP istio_install_operator_custom_resources Watched IstioOperators",
        "istio_install_operator_custom_resources 3.0",
        "# HELP istio_install_operator_version Version of the operator",
        f'istio_install_operator_version{{version="{VERSION}"}} 1.0',
    ]
