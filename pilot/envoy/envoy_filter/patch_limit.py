"""Limits the work and the size of the patches that are applied to one resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.lib.protobuf.fault import Violation

MAX_APPLICATIONS = 50_000
"""Maximum number of times that patches are compared with, or applied to, parts of a resource, such as routes or filter
chains. Each takes about 20 µs."""
MAX_BYTES, FREE_BYTES = 16 << 20, 16 << 10
"""Maximum total size of the copies of patches in a resource. `FREE_BYTES` are added for each part."""
STEP = 32
"""Number of applications in a step, which takes about a millisecond."""
Steps = Iterator[None]
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
    applications = copied = 0
    limited = []
    for patch in patches:
        count = parts(patch)
        size = (patch.value.ByteSize() if patch.value is not None else 0) * count
        if applications + count > MAX_APPLICATIONS or copied + size > MAX_BYTES + FREE_BYTES * count:
            effects.record_misfit(patch, EXCESSIVE)
            continue
        applications, copied = applications + count, copied + size
        limited.append(patch)
    return limited
