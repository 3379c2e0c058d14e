"""Families of metrics in the text format of Prometheus, and their comparison."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$")
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
SUFFIXES = ("_bucket", "_sum", "_count")


@dataclasses.dataclass
class Family:
    """A metric: its type, its sets of label names, and the bounds of its buckets."""

    type: str = "untyped"
    labels: set[tuple[str, ...]] = dataclasses.field(default_factory=set)
    buckets: list[str] = dataclasses.field(default_factory=list)


def parse_metrics(text: str) -> dict[str, Family]:
    """Return the families of a scrape by their names."""
    families: dict[str, Family] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            families.setdefault(name, Family()).type = kind.strip()
        elif match := SAMPLE.match(line):
            name, labels = match[1], dict(LABEL.findall(match[2] or ""))
            stems = (name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix))
            family = families.setdefault(
                name if name in families else next((stem for stem in stems if stem in families), name), Family()
            )
            bound = labels.pop("le", None)
            if bound is not None and bound not in family.buckets:
                family.buckets.append(bound)
            labels.pop("quantile", None)
            family.labels.add(tuple(sorted(labels)))
    return families


def differences(expected: dict[str, Any], family: Family) -> list[str]:
    """Return how a family differs from the recorded one."""
    rows = []
    if expected["type"] != family.type:
        rows.append(f"type {expected['type']}, here {family.type}")
    labels = {tuple(names) for names in expected["labels"]}
    if not family.labels <= labels or not labels & family.labels:
        rows.append(f"labels {sorted(labels)}, here {sorted(family.labels)}")
    if expected.get("buckets", []) != family.buckets:
        rows.append(f"buckets {expected.get('buckets')}, here {family.buckets}")
    return rows
