"""The identity of a container's process: user, group and capabilities of its security context."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Mapping
from typing import Any

PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 8, 24, 47, 2
CAPABILITIES = {"DAC_READ_SEARCH": 2, "NET_BIND_SERVICE": 10, "NET_ADMIN": 12, "NET_RAW": 13}
LAST_CAPABILITY, CAPABILITY_VERSION = 40, 0x20080522
READS_THE_IMAGE = "DAC_READ_SEARCH"
"""Lets the container read this repository in place of its image, even below a folder that only root may enter."""
_libc = ctypes.CDLL(None, use_errno=True)


def apply_security_context(context: Mapping[str, Any]) -> None:
    """Apply a container's securityContext to the calling process. For `preexec_fn`."""
    capabilities = [CAPABILITIES[name] for name in (*context.get("capabilities", {}).get("add", ()), READS_THE_IMAGE)]
    for capability in range(LAST_CAPABILITY + 1):
        if capability not in capabilities:
            _check(_libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0))
    _check(_libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
    os.setgroups([])
    os.setgid(context["runAsGroup"])
    os.setuid(context["runAsUser"])
    _set_capabilities(capabilities)


def _set_capabilities(capabilities: Iterable[int]) -> None:
    """Give exactly these capabilities to the process and to the programs it executes."""
    bits = sum(1 << capability for capability in capabilities)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    head, sets = struct.pack("=Ii", CAPABILITY_VERSION, 0), struct.pack("=6I", low, low, low, high, high, high)
    _check(_libc.capset(head, sets))
    for capability in capabilities:
        _check(_libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
