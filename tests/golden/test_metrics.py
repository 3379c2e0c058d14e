"""The metrics that dashboards and alerts read: each by its name, type, labels and the bounds of its buckets, as /metrics shows one series of it,
and how many series there can be of the labels whose values others choose.

`metrics.txt` is what they are to be; `pytest tests/golden --rewrite` writes it again. A line that changes breaks somebody's dashboard.
"""

from __future__ import annotations

import pathlib

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pilot.lib.build_info import BuildInfo
from pilot.lib.metric_catalogue import CATALOGUE
from pilot.lib.metrics import Metrics

GOLDEN = pathlib.Path(__file__).with_name("metrics.txt")


def shown() -> list[str]:
    """A line for each metric of the catalogue, from the text that a scrape would get."""
    metrics = Metrics(BuildInfo("1", "2", "3"))
    for declared in CATALOGUE.values():
        metrics._at(declared.name, *(f"the {label}" for label in declared.labels))
    families = {family.name: family for family in text_string_to_metric_families(metrics.exposition().decode())}
    found = []
    for declared in CATALOGUE.values():
        family = families.get(declared.name) or families[declared.name.removesuffix("_total")]
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        bounds = dict.fromkeys(sample.labels["le"] for sample in family.samples if "le" in sample.labels)
        names = dict.fromkeys(sample.name for sample in family.samples)
        chosen = [f"{declared.limit} of", *declared.foreign] if declared.foreign else []
        found.append(
            " ".join(
                [
                    family.type,
                    *names,
                    *(f"{{{label}}}" for label in labels),
                    *(["at", *bounds] if bounds else []),
                    *chosen,
                ]
            )
        )
    return sorted(found)


def test_every_metric_is_as_dashboards_know_it(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("rewrite"):
        GOLDEN.write_text("".join(f"{line}\n" for line in shown()))
    assert shown() == GOLDEN.read_text().splitlines()
