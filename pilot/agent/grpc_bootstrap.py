"""The bootstrap of gRPC's own xDS client, for applications that join the mesh without a proxy.

https://github.com/grpc/proposal/blob/master/A27-xds-global-load-balancing.md
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.envoy.envoy_bootstrap import build_node
from pilot.agent.envoy.proxy_bootstrap import build_agent_node, build_locality, xds_socket
from pilot.agent.proxy.proxy_context import ProxyContext
from pilot.lib.start_error import StartError

LISTENER_NAMES = "xds.istio.io/grpc/lds/inbound/%s"
REFRESH = "900s"
"""Time after which a client looks at the certificate files again."""


def grpc_bootstrap_path(facts: ProxyContext, settings: AgentSettings) -> str:
    """Returns where the bootstrap is written, "" where none is."""
    if settings.grpc.bootstrap:
        return settings.grpc.bootstrap
    return f"{facts.proxy.config.config_path}/grpc-bootstrap.json" if facts.metadata.get("GENERATOR") == "grpc" else ""


def build_grpc_bootstrap(facts: ProxyContext, settings: AgentSettings) -> dict[str, Any]:
    """Returns the bootstrap as plain JSON data: configuration comes through the agent, certificates from the files that it writes, where it
    writes any."""
    node = build_node(build_agent_node(facts, settings))
    node["metadata"]["GENERATOR"] = "grpc"
    made: dict[str, Any] = {
        "xds_servers": [
            {
                "server_uri": f"unix:///{os.path.abspath(xds_socket(facts.proxy.config)).lstrip('/')}",
                "channel_creds": [{"type": "insecure"}],
                "server_features": ["xds_v3"],
            }
        ],
        "node": {**node, "locality": build_locality(facts.labels)},
        "server_listener_resource_name_template": LISTENER_NAMES,
    }
    if folder := settings.certificate.output:
        made["certificate_providers"] = {
            "default": {"plugin_name": "file_watcher", "config": _files(os.path.abspath(folder))}
        }
    return made


def _files(folder: str) -> dict[str, str]:
    return {
        "certificate_file": os.path.join(folder, "cert-chain.pem"),
        "private_key_file": os.path.join(folder, "key.pem"),
        "ca_certificate_file": os.path.join(folder, "root-cert.pem"),
        "refresh_interval": REFRESH,
    }


def write_grpc_bootstrap(path: str, bootstrap: dict[str, Any]) -> None:
    """Writes the bootstrap, whole or not at all, in a folder that is made where it is not there. StartError where that cannot be."""
    folder, name = os.path.split(os.path.abspath(path))
    fresh = pathlib.Path(folder, f".{name}.new")
    try:
        os.makedirs(folder, exist_ok=True)
        fresh.write_text(json.dumps(bootstrap, indent=1), encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        raise StartError(f"the bootstrap of gRPC {path} cannot be written: {error.strerror}") from error
