"""The metrics as plain data."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families


def metric_list(exposition: bytes) -> list[dict[str, Any]]:
    """Returns families with their samples, by name, out of their text form; values are texts, as in Prometheus' own API, for JSON has no infinity."""
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
