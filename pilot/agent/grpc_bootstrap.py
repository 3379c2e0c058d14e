"""The bootstrap of gRPC's xDS client, for applications that join the mesh without a proxy.

https://github.com/grpc/proposal/blob/master/A27-xds-global-load-balancing.md
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.envoy.envoy_bootstrap import build_node
from pilot.agent.envoy.proxy_bootstrap import build_agent_node, build_locality
from pilot.agent.proxy.proxy_context import ProxyContext
from pilot.agent.unix_sockets import xds_socket
from pilot.lib.start_error import StartError

LISTENER_NAMES = "xds.istio.io/grpc/lds/inbound/%s"
REFRESH_INTERVAL = "900s"
"""Interval at which the client reloads the certificate files."""


def grpc_bootstrap_path(proxy: ProxyContext, settings: AgentSettings) -> str:
    """Return the path of the bootstrap file, or "" if the agent is not to write one."""
    if settings.grpc.bootstrap_file:
        return settings.grpc.bootstrap_file
    return f"{proxy.config.config_path}/grpc-bootstrap.json" if proxy.metadata.get("GENERATOR") == "grpc" else ""


def build_grpc_bootstrap(proxy: ProxyContext, settings: AgentSettings) -> dict[str, Any]:
    """Return the bootstrap as JSON data.

    The client receives its configuration through the agent. If the agent writes certificates to a directory, the client
    reads them from there.
    """
    node = build_node(build_agent_node(proxy, settings))
    node["metadata"]["GENERATOR"] = "grpc"
    bootstrap: dict[str, Any] = {
        "xds_servers": [
            {
                "server_uri": f"unix:///{os.path.abspath(xds_socket(proxy.config)).lstrip('/')}",
                "channel_creds": [{"type": "insecure"}],
                "server_features": ["xds_v3"],
            }
        ],
        "node": {**node, "locality": build_locality(proxy.labels)},
        "server_listener_resource_name_template": LISTENER_NAMES,
    }
    if directory := settings.certificate.output_directory:
        bootstrap["certificate_providers"] = {
            "default": {"plugin_name": "file_watcher", "config": _file_watcher_config(os.path.abspath(directory))}
        }
    return bootstrap


def _file_watcher_config(directory: str) -> dict[str, str]:
    return {
        "certificate_file": os.path.join(directory, "cert-chain.pem"),
        "private_key_file": os.path.join(directory, "key.pem"),
        "ca_certificate_file": os.path.join(directory, "root-cert.pem"),
        "refresh_interval": REFRESH_INTERVAL,
    }


def write_grpc_bootstrap(path: str, bootstrap: dict[str, Any]) -> None:
    """Write the bootstrap atomically. Create its directory if necessary. Raises StartError."""
    directory, name = os.path.split(os.path.abspath(path))
    temporary = pathlib.Path(directory, f".{name}.new")
    try:
        os.makedirs(directory, exist_ok=True)
        temporary.write_text(json.dumps(bootstrap, indent=1), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise StartError(f"cannot write the gRPC bootstrap {path}: {error.strerror}") from error
