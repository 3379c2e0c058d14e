"""The dashboard and alerts in deploy/monitoring use existing metrics and labels, as their types allow."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from pilot.lib.metrics.metric_catalogue import CATALOGUE
from pilot.lib.metrics.metrics import Metrics

FOLDER = pathlib.Path(__file__).parents[3] / "deploy" / "monitoring"
RULES = [r for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for r in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDED = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
PANELS = [panel for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"] if panel["type"] != "row"]
WORDS = frozenset(
    [
        "sum",
        "max",
        "min",
        "rate",
        "changes",
        "histogram_quantile",
        "vector",
        "by",
        "le",
        "and",
        "or",
        "offset",
        "up",
        "e9",
    ]
)
"""Words that are not our metrics. `up` is from Prometheus."""
SUFFIXES = ("_bucket", "_sum", "_count")


def expressions() -> Iterator[tuple[str, str]]:
    for alert in ALERTS:
        yield f"alert {alert['alert']}", alert["expr"]
    for name, expression in RECORDED.items():
        yield f"rule {name}", expression
    for panel in PANELS:
        for target in panel["targets"]:
            yield f"panel {panel['title']} {target['refId']}", target["expr"]


def names_in(expression: str) -> set[str]:
    """Return the metrics in an expression: its words without labels, strings, ranges and groupings."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|\bby \([^)]*\)|\boffset \w+', " ", re.sub(r'"[^"]*"', "", expression))
    return set(re.findall(r"[a-z_][a-zA-Z0-9_:]*", bare)) - WORDS


def exposed_types() -> dict[str, str]:
    """Return the types of all exposed metrics by name."""
    kinds = {name: definition.kind for name, definition in CATALOGUE.items()}
    lines = (line.split() for line in Metrics().exposition().decode().splitlines() if line.startswith("# TYPE"))
    return {**{name: kind for _, _, name, kind in lines}, **kinds}


@pytest.mark.parametrize(
    ("location", "expression"),
    list(expressions()),
    ids=lambda value: value if " " in value and "(" not in value else "",
)
def test_metrics_exist_with_the_required_type(location: str, expression: str) -> None:
    kinds, names = exposed_types(), names_in(expression) - RECORDED.keys()
    assert names or "up{" in expression or names_in(expression), location
    for name in names:
        base = next(
            (name.removesuffix(suffix) for suffix in SUFFIXES if kinds.get(name.removesuffix(suffix)) == "histogram"),
            name,
        )
        assert base in kinds, f"{location}: {name} is not a metric"
        if re.search(rf"\brate\({name}\b", expression):
            assert kinds[base] in ("counter", "histogram"), f"{location}: {name} is a {kinds[base]}"
        if "histogram_quantile" in expression:
            assert name.endswith("_bucket"), location


def labels_in(expression: str) -> Iterator[tuple[str, str]]:
    """Yield each metric with a label that the expression selects or groups by, if that is unambiguous."""
    for name, selector in re.findall(r"([a-z_]\w*)\{([^}]*)\}", expression):
        for label in re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", selector):
            yield name, label
    names = names_in(expression)
    for grouping in re.findall(r"\bby \(([^)]*)\)", expression):
        if len(names) == 1:
            yield from ((next(iter(names)), label.strip()) for label in grouping.split(","))


def test_labels_exist() -> None:
    prometheus_labels = {"app", "instance", "le"}
    for location, expression in expressions():
        for name, label in labels_in(expression):
            base = next(
                (name.removesuffix(suffix) for suffix in SUFFIXES if name.removesuffix(suffix) in CATALOGUE), name
            )
            if base in CATALOGUE and label not in prometheus_labels:
                assert label in CATALOGUE[base].labels, f"{location}: {name} has no label {label}"


def test_alerts_are_documented() -> None:
    assert len(ALERTS) >= 20
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)
    for alert in ALERTS:
        assert alert["labels"]["severity"] in ("info", "warning", "critical")
        annotations: dict[str, Any] = alert["annotations"]
        assert annotations["summary"]
        assert len(annotations["description"]) > 20


def test_names_in_an_expression() -> None:
    assert names_in('sum by (le) (rate(a_b_bucket{x="rate(y)"}[5m])) - (sum(c offset 10m) or 0 * sum(c)) > 86400') == {
        "a_b_bucket",
        "c",
    }
