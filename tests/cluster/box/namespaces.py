"""The namespaces that a box needs: the machine outside is not changed, and no process outlives the first one."""

from __future__ import annotations

NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
PARENT = ("setpriv", "--pdeathsig", "KILL")
"""The box ends with the process that starts it, even if that is killed."""


def in_namespaces(*command: str, network: bool = True) -> list[str]:
    """Return a command that runs another one in new namespaces. Without `network` it keeps its network."""
    return [*PARENT, *NAMESPACES, *["--net"] * network, *command]
