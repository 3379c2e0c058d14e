"""Resource limits that are checked at startup, because gRPC aborts the process if one of them is too low."""

from __future__ import annotations

import resource

from pilot.lib.start_error import StartError

FILES = 64
"""Number of open files that an idle process with a few proxies needs."""
ADDRESS_SPACE = 512 << 20
"""Bytes of address space that an idle process needs. Most of it is thread stacks and libraries, not resident memory."""


def claim_resources() -> None:
    """Raise the soft limit on open files to the hard limit.

    Raise StartError if that limit or the limit on address space is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < FILES:
        raise StartError(
            f"only {hard} files may be open at once, and each proxy needs one: allow at least {FILES} (ulimit -n)"
        )
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY and space < ADDRESS_SPACE:
        raise StartError(
            f"the address space is limited to {space >> 20} MB: allow at least {ADDRESS_SPACE >> 20} MB (ulimit -v)"
        )
