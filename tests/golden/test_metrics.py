"""Names, types, labels, buckets and series limits of all metrics.

`metrics.txt` is the golden file; `pytest tests/golden --rewrite` regenerates it. A changed line breaks dashboards and alerts.
"""

from __future__ import annotations

import pathlib

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pilot.lib.build_info import BuildInfo
from pilot.lib.metrics.metric_catalogue import CATALOGUE
from pilot.lib.metrics.metrics import Metrics

GOLDEN = pathlib.Path(__file__).with_name("metrics.txt")


def metric_lines() -> list[str]:
    """Return a line for each metric of the catalogue, taken from the exposition."""
    metrics = Metrics(BuildInfo("1", "2", "3"))
    for metric in CATALOGUE.values():
        metrics._at(metric.name, *(f"the {label}" for label in metric.labels))
    families = {family.name: family for family in text_string_to_metric_families(metrics.exposition().decode())}
    result = []
    for metric in CATALOGUE.values():
        family = families.get(metric.name) or families[metric.name.removesuffix("_total")]
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        bounds = dict.fromkeys(sample.labels["le"] for sample in family.samples if "le" in sample.labels)
        names = dict.fromkeys(sample.name for sample in family.samples)
        limits = [f"{metric.limit} of", *metric.foreign] if metric.foreign else []
        result.append(
            " ".join(
                [
                    family.type,
                    *names,
                    *(f"{{{label}}}" for label in labels),
                    *(["at", *bounds] if bounds else []),
                    *limits,
                ]
            )
        )
    return sorted(result)


def test_metrics_equal_the_golden_file(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("rewrite"):
        GOLDEN.write_text("".join(f"{line}\n" for line in metric_lines()))
    assert metric_lines() == GOLDEN.read_text().splitlines()
