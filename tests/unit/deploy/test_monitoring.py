"""The dashboard and the alerts in deploy/monitoring ask for metrics that there are, in ways that their kinds allow."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from pilot.lib.metric_catalogue import CATALOGUE
from pilot.lib.metrics import Metrics

FOLDER = pathlib.Path(__file__).parents[3] / "deploy" / "monitoring"
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
PANELS = [panel for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"] if panel["type"] != "row"]
WORDS = frozenset(
    ["sum", "max", "min", "rate", "changes", "histogram_quantile", "vector", "by", "le", "or", "offset", "up", "e9"]
)
"""What is no metric of ours; `up` is Prometheus's own."""
SUFFIXES = ("_bucket", "_sum", "_count")


def expressions() -> Iterator[tuple[str, str]]:
    for alert in ALERTS:
        yield f"alert {alert['alert']}", alert["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            yield f"panel {panel['title']} {target['refId']}", target["expr"]


def names_in(expression: str) -> set[str]:
    """The metrics of an expression: its words without labels, texts, ranges and what they are grouped by."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|\bby \([^)]*\)|\boffset \w+', " ", re.sub(r'"[^"]*"', "", expression))
    return set(re.findall(r"[a-z_][a-zA-Z0-9_:]*", bare)) - WORDS


def exposed() -> dict[str, str]:
    """The kinds of all metrics that may be exposed, by name."""
    kinds = {name: declared.kind for name, declared in CATALOGUE.items()}
    lines = (line.split() for line in Metrics().exposition().decode().splitlines() if line.startswith("# TYPE"))
    return {**{name: kind for _, _, name, kind in lines}, **kinds}


@pytest.mark.parametrize(
    ("place", "expression"), list(expressions()), ids=lambda value: value if " " in value and "(" not in value else ""
)
def test_metrics_exist_and_are_of_the_kind_that_is_asked_for(place: str, expression: str) -> None:
    kinds, names = exposed(), names_in(expression)
    assert names or "up{" in expression, place
    for name in names:
        base = next(
            (name.removesuffix(suffix) for suffix in SUFFIXES if kinds.get(name.removesuffix(suffix)) == "histogram"),
            name,
        )
        assert base in kinds, f"{place}: {name} is no metric"
        if re.search(rf"\brate\({name}\b", expression):
            assert kinds[base] in ("counter", "histogram"), f"{place}: {name} is a {kinds[base]}"
        if "histogram_quantile" in expression:
            assert name.endswith("_bucket"), place


def labels_in(expression: str) -> Iterator[tuple[str, str]]:
    """Each metric with a label that the expression selects or groups by, where that is unambiguous."""
    for name, selected in re.findall(r"([a-z_]\w*)\{([^}]*)\}", expression):
        for label in re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", selected):
            yield name, label
    names = names_in(expression)
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        if len(names) == 1:
            yield from ((next(iter(names)), label.strip()) for label in grouped.split(","))


def test_labels_exist() -> None:
    given_by_prometheus = {"app", "instance", "le"}
    for place, expression in expressions():
        for name, label in labels_in(expression):
            base = next(
                (name.removesuffix(suffix) for suffix in SUFFIXES if name.removesuffix(suffix) in CATALOGUE), name
            )
            if base in CATALOGUE and label not in given_by_prometheus:
                assert label in CATALOGUE[base].labels, f"{place}: {name} has no label {label}"


def test_alerts_say_what_to_do() -> None:
    assert len(ALERTS) >= 20
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)
    for alert in ALERTS:
        assert alert["labels"]["severity"] in ("info", "warning", "critical")
        annotations: dict[str, Any] = alert["annotations"]
        assert annotations["summary"]
        assert len(annotations["description"]) > 20


def test_the_names_of_an_expression_are_found() -> None:
    assert names_in('sum by (le) (rate(a_b_bucket{x="rate(y)"}[5m])) - (sum(c offset 10m) or 0 * sum(c)) > 86400') == {
        "a_b_bucket",
        "c",
    }
