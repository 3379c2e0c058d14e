"""What the operating system must grant before anything starts: gRPC ends the process by a signal where it lacks one of these."""

from __future__ import annotations

import resource

from pilot.lib.start_error import StartError

FILES = 64
"""Open files that an idle process needs, with a few proxies."""
ADDRESS_SPACE = 512 << 20
"""Bytes of address space that an idle process needs; most of them are stacks and libraries, and no memory."""


def claim_resources() -> None:
    """Raises the limit of open files as far as it goes. StartError where that, or the address space, is not enough."""
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
