"""The admin interface of a connected proxy's Envoy, on this machine or through a port-forward of kubectl."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.envoy import ADMIN_PORT, request_admin

SECONDS = 15.0
"""Maximum number of seconds until a port-forward is ready."""
_FORWARDED = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")


@contextlib.contextmanager
def open_admin(client: dict[str, Any]) -> Iterator[str]:
    """Yield the address of the admin interface of a connected proxy, which is an entry of the debug page adsz.

    If the proxy connects from this machine, its admin port is used directly. Otherwise, the proxy runs in a Pod, and
    kubectl forwards a port to it. Raise CommandError if Envoy is unreachable, or if it is another proxy's.
    """
    metadata: dict[str, Any] = client.get("metadata", {})
    proxy_id = client["connectionId"].rpartition("-")[0]
    fields = metadata.get("PROXY_CONFIG")
    port = int((fields if isinstance(fields, dict) else {}).get("proxyAdminPort") or ADMIN_PORT)
    connection = (
        contextlib.nullcontext(f"http://127.0.0.1:{port}")
        if _is_local(client.get("address", ""))
        else _forward(proxy_id, str(metadata.get("NAME", "")), str(metadata.get("NAMESPACE", "")), port)
    )
    with connection as admin:
        try:
            node_id = _node_id(admin)
        except CommandError as error:
            raise CommandError(
                f"{error.message}. This needs the admin interface of {proxy_id}: forward its port {port} to this "
                "machine, or use --envoy URL or a config_dump with --file FILE"
            ) from error
        if proxy_id not in node_id.split("~"):
            raise CommandError(
                f"the server at {admin} is not the Envoy of {proxy_id}, but {node_id or 'another server'}; use --envoy "
                f"URL to specify its admin address"
            )
        yield admin


def _node_id(admin: str) -> str:
    """Return the node ID of an Envoy, or "" if the server is not an Envoy."""
    try:
        info = json.loads(request_admin(admin, "server_info"))
        return str(info["node"]["id"])
    except (ValueError, KeyError, TypeError):
        return ""


def _is_local(address: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address.rpartition(":")[0].strip("[]").removeprefix("::ffff:")).is_loopback
    return False


@contextlib.contextmanager
def _forward(proxy_id: str, pod: str, namespace: str, port: int) -> Iterator[str]:
    """Yield the local address of a port of a Pod, while kubectl forwards it."""
    kubectl = shutil.which("kubectl")
    if kubectl is None or not (pod and namespace):
        reason = "kubectl, which reaches its Pod, is not installed" if pod else "it does not name its Pod"
        raise CommandError(
            f"cannot reach the Envoy of {proxy_id}: it is on another machine, and {reason}; use --envoy URL"
        )
    command = [kubectl, "port-forward", "--namespace", namespace, f"pod/{pod}", f":{port}", "--address", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    timer = threading.Timer(SECONDS, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        match = _FORWARDED.match(process.stdout.readline())
        timer.cancel()
        if match is None:
            process.kill()
            reason = process.stderr.read().strip().rpartition("\n")[2] or f"no port-forward within {SECONDS:g} s"
            raise CommandError(f"cannot reach the Envoy of {proxy_id} through kubectl: {reason}")
        yield f"http://127.0.0.1:{match[1]}"
    finally:
        timer.cancel()
        process.kill()
        process.communicate()
