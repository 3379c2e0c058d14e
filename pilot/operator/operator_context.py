"""The context that all reconcilers of one operator share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pilot.install.installer import WaitOptions
from pilot.kube.object_client import ResourceKey
from pilot.lib.backoff import Backoff
from pilot.operator.drift import AppliedObjects
from pilot.operator.operator_metrics import OperatorMetrics


class OperatorContext(NamedTuple):
    """The shared context.

    `namespaces` are the watched namespaces, or None for all. The argument of the two functions is an IstioOperator:
    `desired_by_others` returns the objects that other IstioOperators install, and `transfer` makes the others apply
    objects, and thereby take them over.
    """

    objects: AppliedObjects
    namespaces: Sequence[str] | None
    revision: str
    wait: WaitOptions
    backoff: Backoff
    rng: random.Random
    metrics: OperatorMetrics
    desired_by_others: Callable[[ResourceKey], frozenset[ResourceKey]]
    transfer: Callable[[Iterable[ResourceKey], ResourceKey], None]
