"""Limits the work and the size of the patches that are applied to one resource."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TypeVar

from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.lib.protobuf.fault import Violation

T = TypeVar("T")
MAX_APPLICATIONS = 50_000
"""Maximum number of times that patches are compared with, or applied to, parts of a resource, such as routes or filter
chains. Each takes about 20 µs."""
MAX_BYTES, FREE_BYTES = 16 << 20, 16 << 10
"""Maximum total size of the copies of patches in a resource. `FREE_BYTES` are added for each part."""
MAX_GROWTH = 32 << 20
"""Maximum total size of the patches that precede each merging patch, in all parts of a cluster or listener. Each of
these patches copies or parses what earlier ones have merged into the same part."""
_COPYING = frozenset(("CLUSTER", "FILTER_CHAIN", "LISTENER_FILTER", "NETWORK_FILTER", "HTTP_FILTER"))
STEP = 32
"""Number of applications in a step, which takes about a millisecond."""
Steps = Generator[None, None, T]
"""The steps of a computation that may be interrupted between them."""
EXCESSIVE = Violation(
    "too-large",
    (),
    f"all patches together are too large for the number of parts that they match; at most {MAX_APPLICATIONS} "
    f"applications and {MAX_BYTES >> 20} MB are allowed; split the resource, or name the parts to patch",
)


def limit_patches(
    patches: Iterable[ParsedPatch], parts: Callable[[ParsedPatch], int], effects: Effects
) -> list[ParsedPatch]:
    """Return the patches that do not exceed the limits, and record the others.

    `parts` returns the number of parts that a patch may apply to.
    """
    applications = copied = growth = merged = 0
    limited = []
    for patch in patches:
        count, size = parts(patch), patch.value.ByteSize() if patch.value is not None else 0
        grows = patch.merges and patch.apply_to in _COPYING
        if (
            applications + count > MAX_APPLICATIONS
            or copied + size * count > MAX_BYTES + FREE_BYTES * count
            or (grows and growth + merged * count > MAX_GROWTH)
        ):
            effects.record_misfit(patch, EXCESSIVE)
            continue
        applications, copied = applications + count, copied + size * count
        if grows:
            growth, merged = growth + merged * count, merged + size
        limited.append(patch)
    return limited


def batches(patches: Sequence[ParsedPatch]) -> Iterator[Sequence[ParsedPatch]]:
    """Yield the patches that are applied in each step."""
    return (patches[first : first + STEP] for first in range(0, len(patches), STEP))
