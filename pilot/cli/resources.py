"""Resources of the process that are claimed at startup: open files, address space, and a folder for temporary files."""

from __future__ import annotations

import resource
import tempfile

from pilot.lib.start_error import StartError

FILES = 64
"""Number of open files that an idle process with a few proxies needs."""
ADDRESS_SPACE = 512 << 20
"""Bytes of address space that an idle process needs. Most of it is thread stacks and libraries, not resident memory."""

MEMORY_FOLDER = "/dev/shm"  # noqa: S108  containers have one of their own


def claim_resources() -> None:
    """Raise the soft limit on open files to the hard limit, and choose a folder for temporary files.

    Raise StartError if that limit or the limit on address space is too low, because gRPC aborts the process then.
    """
    _choose_temporary_folder()
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


def _choose_temporary_folder() -> None:
    """Put temporary files into memory if all folders for them are read-only, as in containers of the charts.

    The `kubernetes` package writes the certificates of kubeconfigs to such files.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = MEMORY_FOLDER
