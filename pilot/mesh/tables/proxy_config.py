"""The effective proxy config of a proxy."""

from __future__ import annotations

from typing import Any

import msgspec

from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.config.problem import Severity
from pilot.config.validation.mesh import validate_proxy_config
from pilot.derive import derived
from pilot.lib.duration import Duration, parse_duration
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.mesh.tables.proxies import connected_proxy

_XDS_FIELDS = ("tracing", "proxyHeaders", "connectionSettings", "gatewayTopology", "privateKeyProvider")


@derived
def proxy_config(db: Mesh, node_id: str) -> ProxyConfig:
    """Return the effective proxy config of a proxy.

    This is the one in its metadata, which its agent has merged, or else the default in the mesh config. Only the parts
    that affect xDS are read. Invalid parts and fields are ignored.
    """
    proxy = connected_proxy(db, node_id)
    announced = proxy.metadata.get("PROXY_CONFIG") if proxy is not None else None
    if isinstance(announced, dict):
        return decode_proxy_config(announced)
    return mesh_config(db).default_config or ProxyConfig()


def decode_proxy_config(announced: dict[str, Any]) -> ProxyConfig:
    """Return the proxy config decoded from the JSON of istio.mesh.v1alpha1.ProxyConfig. Invalid parts are ignored."""
    config = ProxyConfig()
    for name in _XDS_FIELDS:
        if name in announced:
            try:
                part = _decode_valid(name, announced[name])
            except msgspec.ValidationError:
                continue
            field = next(f for f in msgspec.structs.fields(ProxyConfig) if f.encode_name == name)
            config = msgspec.structs.replace(config, **{field.name: getattr(part, field.name)})
    return config


def _decode_valid(name: str, plain: Any) -> ProxyConfig:
    """Return a part of the proxy config without its invalid fields."""
    part = msgspec.convert({name: plain}, ProxyConfig, dec_hook=_decode)
    wrong = {
        p.path.split(".")[1] for p in validate_proxy_config(part) if p.severity is Severity.ERROR and "." in p.path
    }
    if not wrong:
        return part
    return msgspec.convert({name: {k: v for k, v in plain.items() if k not in wrong}}, ProxyConfig, dec_hook=_decode)


def _decode(kind: type, value: Any) -> Any:
    if kind is Duration and isinstance(value, str):
        return parse_duration(value)
    raise NotImplementedError(kind)
