"""The ProxyConfig that holds for this proxy: the mesh's default, under the variable PROXY_CONFIG, under the pod's annotation."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.lib.duration import Duration, parse_duration

ANNOTATION = "proxy.istio.io/config"
DISCOVERY_ADDRESS, STATUS_PORT = "sidecar.istio.io/discoveryAddress", "status.sidecar.istio.io/port"


class EffectiveConfig(NamedTuple):
    """`config` is what holds; `given` is what users said of it, in their JSON names, for the node's metadata."""

    config: ProxyConfig
    given: dict[str, Any]


def build_proxy_config(sources: Iterable[tuple[str, Mapping[str, Any]]]) -> EffectiveConfig:
    """Returns what sources say together, each a name and its fields, later ones first. Maps of metadata and headers are merged, any other
    field is replaced. ValueError, which names the source and the path, for a field that does not exist or has no such value."""
    given: dict[str, Any] = {}
    config = ProxyConfig()
    for where, fields in sources:
        for name, value in fields.items():
            mergeable = name in ("proxyMetadata", "proxyHeaders") and isinstance(value, dict)
            given[name] = {**given.get(name, {}), **value} if mergeable else value
        config = _decode(where, given)
    return EffectiveConfig(config, given)


def read_sources(mesh_file: str, variable: str, annotations: Mapping[str, str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns the sources that are there, the weakest first. ValueError, which names the source, for what is no object."""
    found = []
    try:
        mesh = parse_object(f"file {mesh_file}", pathlib.Path(mesh_file).read_text(encoding="utf-8"))
        found.append((f"file {mesh_file}, defaultConfig", mesh.get("defaultConfig") or {}))
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"file {mesh_file}: {error}") from error
    if variable:
        found.append(("variable PROXY_CONFIG", parse_object("variable PROXY_CONFIG", variable)))
    if text := annotations.get(ANNOTATION):
        found.append((f"annotation {ANNOTATION}", parse_object(f"annotation {ANNOTATION}", text)))
    for annotation, field in ((DISCOVERY_ADDRESS, "discoveryAddress"), (STATUS_PORT, "statusPort")):
        if text := annotations.get(annotation):
            found.append(
                (f"annotation {annotation}", {field: int(text) if text.isascii() and text.isdigit() else text})
            )
    return found


def parse_object(where: str, text: str) -> dict[str, Any]:
    """Returns the object that a text holds in JSON or YAML, an empty one for no text. ValueError, which names `where`, for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        import yaml  # JSON, which injectors write, does without it

        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"{where} is neither JSON nor YAML: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    return value


def _decode(where: str, given: Mapping[str, Any]) -> ProxyConfig:
    try:
        return msgspec.convert(given, ProxyConfig, dec_hook=_duration, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {error}") from error


def _duration(kind: type, value: Any) -> Any:
    if kind is Duration and isinstance(value, str):
        return parse_duration(value)
    raise ValueError(f"{value!r} is no {kind.__name__}")
