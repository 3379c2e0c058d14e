"""Metrics as plain data."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families


def metric_list(exposition: bytes) -> list[dict[str, Any]]:
    """Return the metric families in an exposition, with their samples.

    Values are strings, as in Prometheus' API, because JSON cannot represent infinity.
    """
    return [
        {
            "name": family.name,
            "help": family.documentation,
            "type": family.type,
            "metric": [
                {"name": sample.name, "labels": sample.labels, "value": f"{sample.value:.15g}"}
                for sample in family.samples
            ],
        }
        for family in text_string_to_metric_families(exposition.decode())
    ]
