"""Finds the process that listens on a TCP port."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"


def find_port_owner(port: int) -> str:
    """Return the process that listens on a TCP port, such as "process 42 (envoy)", or "" if it is unknown.

    The processes of other users are unknown, unless the caller is root.
    """
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not inodes:
        return ""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if not inodes.isdisjoint(_targets(f"/proc/{pid}/fd")):
                with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                    return f"process {pid} ({file.read().strip()})"
    return ""


def _listening_inodes(port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port.

    https://docs.kernel.org/networking/proc_net_tcp.html
    """
    for table in _TABLES:
        with contextlib.suppress(OSError), open(table, encoding="ascii") as file:
            for line in list(file)[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _targets(folder: str) -> Iterator[str]:
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            yield os.readlink(f"{folder}/{name}")
