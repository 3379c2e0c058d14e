"""The process and its memory as plain data, with the field names that a Go process uses."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import tempfile
import threading
import time
from typing import Any

from pilot.lib.process_status import process_status

_GO_NAMES = (
    "Alloc",
    "TotalAlloc",
    "Sys",
    "Lookups",
    "Mallocs",
    "Frees",
    "HeapAlloc",
    "HeapSys",
    "HeapIdle",
    "HeapInuse",
    "HeapReleased",
    "HeapObjects",
    "StackInuse",
    "StackSys",
    "MSpanInuse",
    "MSpanSys",
    "MCacheInuse",
    "MCacheSys",
    "BuckHashSys",
    "GCSys",
    "OtherSys",
    "NextGC",
    "LastGC",
    "PauseTotalNs",
    "PauseNs",
    "PauseEnd",
    "NumGC",
    "NumForcedGC",
    "GCCPUFraction",
    "EnableGC",
    "DebugGC",
    "BySize",
)
_LISTS = frozenset({"PauseNs", "PauseEnd", "BySize"})


def home(name: str, address: str) -> dict[str, Any]:
    """Return the content of the home page.

    `address` is the local address of the client's connection. CurrentTime is in nanoseconds, HeapSize in bytes.
    """
    memory = memory_statistics()
    return {
        "ProcessName": name,
        "HeapSize": memory["HeapAlloc"],
        "NumGC": memory["NumGC"],
        "CurrentTime": time.time_ns(),
        "Hostname": socket.gethostname(),
        "IP": address,
    }


def process_facts() -> dict[str, Any]:
    """Return the user and process IDs, directories, and the numbers of threads and tasks.

    The tasks are reported as goroutines.
    """
    return {
        "egid": os.getegid(),
        "euid": os.geteuid(),
        "gid": os.getgid(),
        "groups": os.getgroups() or None,
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "uid": os.getuid(),
        "wd": _working_folder(),
        "hostname": socket.gethostname(),
        "tempdir": tempfile.gettempdir(),
        "threads": process_status().get("Threads", threading.active_count()),
        "goroutines": len(asyncio.all_tasks()),
    }


def memory_statistics() -> dict[str, Any]:
    """Return memory sizes in bytes and the number of garbage collections, with the field names that Go uses.

    Sys is the resident memory, and the heap is its anonymous part. Numbers without a counterpart in Python, such as
    those of Go's spans, are 0. On systems without /proc, all numbers are 0.
    """
    status = process_status()
    heap, stack = 1024 * status.get("RssAnon", 0), 1024 * status.get("VmStk", 0)
    statistics: dict[str, Any] = {
        "Alloc": heap,
        "Sys": 1024 * status.get("VmRSS", 0),
        "HeapAlloc": heap,
        "HeapSys": heap,
        "HeapInuse": heap,
        "HeapObjects": sys.getallocatedblocks(),
        "StackInuse": stack,
        "StackSys": stack,
        "OtherSys": 1024 * (status.get("RssFile", 0) + status.get("RssShmem", 0)),
        "NumGC": sum(generation["collections"] for generation in gc.get_stats()),
        "EnableGC": gc.isenabled(),
        "DebugGC": bool(gc.get_debug()),
    }
    return {name: statistics.get(name, [] if name in _LISTS else 0) for name in _GO_NAMES}


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # it was removed
