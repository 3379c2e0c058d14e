"""Reports of stalls of the event loop, with the derivation and the object that caused them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import FrameType

from pilot.derive import Database, Node
from pilot.lib.logging.log import scope
from pilot.lib.loop_watchdog import Cause, LoopWatchdog, Stall, find_function
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.text import cut

LOGGED_SECONDS = 0.5
"""Duration from which a stall is logged."""
_SUBJECT_PARTS, _SUBJECT_LENGTH = 6, 200
_log = scope("default")


def build_loop_watchdog(metrics: Metrics) -> LoopWatchdog:
    """Return a watchdog that counts stalls in the metrics, and logs the long ones."""

    def report(stall: Stall) -> None:
        metrics.loop_stalled(stall.seconds, stall.cause.work)
        if stall.seconds >= LOGGED_SECONDS:
            work, subject = stall.cause
            _log.warning("the event loop was blocked for %.2f s by %s (%s)", stall.seconds, work, subject)

    return LoopWatchdog(report, find_cause)


def find_cause(frames: list[FrameType]) -> Cause:
    """Return the outermost derivation that is running, and the arguments of the innermost one.

    If no derivation is running, the cause is a function.
    """
    run = Database._run.__code__
    nodes = [node for frame in frames if frame.f_code is run and isinstance(node := frame.f_locals.get("node"), Node)]
    if not nodes:
        return find_function(frames)
    parts = itertools.islice(_texts(nodes[0].args), _SUBJECT_PARTS)
    return Cause(nodes[-1].fn.__name__, cut(" ".join(parts), _SUBJECT_LENGTH))


def _texts(value: object) -> Iterator[str]:
    """Yield the texts and numbers in the keys of a derivation, such as the name and namespace of an object."""
    if isinstance(value, tuple):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str | int) and not isinstance(value, bool) and value != "":
        yield str(value)
