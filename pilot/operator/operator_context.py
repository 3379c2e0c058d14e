"""What all IstioOperators of one operator share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pilot.install.installer import WaitOptions
from pilot.kube.object_client import ResourceKey
from pilot.lib.backoff import Backoff
from pilot.operator.applied_objects import AppliedObjects
from pilot.operator.metrics import OperatorMetrics


class OperatorContext(NamedTuple):
    """`namespaces` are those that are watched, None for all; `kept` returns the objects that other IstioOperators than one want;
    `hand_over` has these take objects over from it."""

    objects: AppliedObjects
    namespaces: Sequence[str] | None
    revision: str
    waits: WaitOptions
    backoff: Backoff
    choose: random.Random
    metrics: OperatorMetrics
    kept: Callable[[ResourceKey], frozenset[ResourceKey]]
    hand_over: Callable[[Iterable[ResourceKey], ResourceKey], None]
