"""The Prometheus text format 0.0.4, as Go's client writes it.

prometheus-client adds `_total` and `_created` to names, and writes `1.0` where Go writes `1`. Dashboards and alerts for
istiod rely on Go's names, and scripts rely on its numbers.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from prometheus_client import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
SERIES_CACHE_SIZE = 10_000
"""Number of series whose line is cached without the value."""


def format_float(value: float) -> str:
    """Return the shortest decimal form of a number, such as `1`, `0.01` or `1e+06`.

    Exponents are used below 1e-4, and from 1e6.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    number = Decimal(repr(float(value))).normalize()
    exponent = number.adjusted()
    if -4 <= exponent < 6:
        return f"{number:f}"
    sign, digits, _ = number.as_tuple()
    fraction = "".join(map(str, digits[1:]))
    return f"{'-' if sign else ''}{digits[0]}{'.' if fraction else ''}{fraction}e{exponent:+03d}"


def render(metrics: Iterable[Metric], names: Mapping[str, str]) -> bytes:
    """Return the exposition of metrics, sorted by name.

    `names` maps the family names of prometheus-client to the declared names.
    """
    families = sorted(((names.get(m.name) or _own_name(m), m) for m in metrics), key=lambda family: family[0])
    return "".join(_family(name, metric) for name, metric in families if metric.samples).encode()


def _own_name(metric: Metric) -> str:
    return metric.name + "_total" if metric.type == "counter" else metric.name


def _family(name: str, metric: Metric) -> str:
    kind = "gauge" if metric.type == "info" else "untyped" if metric.type == "unknown" else metric.type
    lines = [f"# HELP {name} {_escape(metric.documentation)}", f"# TYPE {name} {kind}"]
    series = []
    for sample in metric.samples:
        if not sample.name.endswith("_created"):
            position, text = _series(name if kind == "counter" else sample.name, tuple(sample.labels.items()))
            series.append((position, text + format_float(sample.value)))
    lines += [text for _, text in sorted(series)]
    return "\n".join(lines) + "\n"


class _Position(NamedTuple):
    """The sort key of a series: its labels and, in a histogram, first the buckets in order of their bounds, then the
    sum, then the count."""

    labels: tuple[tuple[str, str], ...]
    part: int
    bound: float


@functools.lru_cache(SERIES_CACHE_SIZE)
def _series(name: str, labels: tuple[tuple[str, str], ...]) -> tuple[_Position, str]:
    """Return the position of a series in its family, and its line without the value."""
    ordered = sorted(labels, key=lambda label: (label[0] == "le", label[0]))  # a bucket's bound comes last
    text = ",".join(f'{key}="{_label(key, value)}"' for key, value in ordered)
    part = 2 if name.endswith("_count") else 1 if name.endswith("_sum") else 0
    bound = float(dict(labels).get("le", 0.0))
    position = _Position(tuple(label for label in ordered if label[0] != "le"), part, bound)
    return position, f"{name}{'{' + text + '}' if text else ''} "


def _label(key: str, value: str) -> str:
    return format_float(float(value)) if key == "le" else _escape(value).replace('"', r"\"")


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
