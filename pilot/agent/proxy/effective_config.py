"""The effective ProxyConfig: the mesh's default, overridden by the variable PROXY_CONFIG and the pod's annotations."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.agent.proxy.server_address import parse_address
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.config.problem import LONGEST_FIELD
from pilot.ingest.field_hints import UNKNOWN_FIELD
from pilot.ingest.shape import checked, normalize
from pilot.lib.duration import Duration, parse_duration
from pilot.lib.text import cut, explain_yaml

ANNOTATION = "proxy.istio.io/config"
DISCOVERY_ADDRESS, STATUS_PORT = "sidecar.istio.io/discoveryAddress", "status.sidecar.istio.io/port"


class EffectiveConfig(NamedTuple):
    """A ProxyConfig, and the fields that users set.

    `fields` are keyed by their JSON names and become part of the node's metadata.
    """

    config: ProxyConfig
    fields: dict[str, Any]


def build_proxy_config(sources: Iterable[tuple[str, Mapping[str, Any]]]) -> EffectiveConfig:
    """Merge sources in ascending precedence. Each source is a name and its fields.

    Metadata and headers are merged by key. Any other field is replaced. Names may be in snake_case. If a field is
    unknown or has an invalid value, raises ValueError with the source and the path of the field.
    """
    merged: dict[str, Any] = {}
    config = ProxyConfig()
    for source, fields in sources:
        named_fields, problems = normalize(fields, ProxyConfig, strict=True)
        if problems:
            raise ValueError(f"{source}: {problems[0].message}")
        for name, value in named_fields.items():
            is_mergeable = name in ("proxyMetadata", "proxyHeaders") and isinstance(value, dict)
            merged[name] = {**merged.get(name, {}), **value} if is_mergeable else value
        config = _decode(source, merged)
        if "discoveryAddress" in named_fields:
            parse_address(f"{source}: discoveryAddress", config.discovery_address)
    return EffectiveConfig(config, merged)


def read_sources(mesh_file: str, variable: str, annotations: Mapping[str, str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the available sources in ascending precedence.

    Raises ValueError with the name of the source if one is unreadable or is not an object.
    """
    sources: list[tuple[str, Mapping[str, Any]]] = []
    try:
        mesh = parse_object(f"file {mesh_file}", pathlib.Path(mesh_file).read_text(encoding="utf-8"))
        sources.append((f"file {mesh_file}, defaultConfig", mesh.get("defaultConfig") or {}))
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
        raise ValueError(f"--meshConfig: file {mesh_file}: {reason}") from error
    return [*sources, *pod_sources(variable, annotations)]


def pod_sources(variable: str, annotations: Mapping[str, str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the sources in a pod: PROXY_CONFIG and the annotations. Raises ValueError like `read_sources`."""
    sources: list[tuple[str, Mapping[str, Any]]] = []
    if variable:
        sources.append(("variable PROXY_CONFIG", parse_object("variable PROXY_CONFIG", variable)))
    if text := annotations.get(ANNOTATION):
        sources.append((f"annotation {ANNOTATION}", parse_object(f"annotation {ANNOTATION}", text)))
    for annotation, field in ((DISCOVERY_ADDRESS, "discoveryAddress"), (STATUS_PORT, "statusPort")):
        if text := annotations.get(annotation):
            sources.append(
                (f"annotation {annotation}", {field: int(text) if text.isascii() and text.isdigit() else text})
            )
    return sources


def parse_object(source: str, text: str) -> dict[str, Any]:
    """Return a JSON or YAML object, or {} if the text is empty.

    Raises ValueError with the name of the source if the text is anything else.
    """
    try:
        value = json.loads(text)
    except ValueError:
        import yaml  # imported only when needed: injectors write JSON

        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"{source} is neither JSON nor YAML: {explain_yaml(error)}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{source} is not an object, but {cut(text, LONGEST_FIELD)!r}")
    return value


def _decode(source: str, fields: Mapping[str, Any]) -> ProxyConfig:
    try:
        return msgspec.convert(fields, ProxyConfig, dec_hook=_decode_duration, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        for problem in checked(fields, ProxyConfig)[1]:
            if problem.code == UNKNOWN_FIELD or text.endswith(f"`$.{problem.path}`"):  # others are converted
                text = f"{problem.path}: {problem.message}"
                break
        raise ValueError(f"{source}: {text}") from error


def _decode_duration(kind: type, value: Any) -> Any:
    if kind is Duration and isinstance(value, str):
        return parse_duration(value)
    raise ValueError(f"{value!r} is not a valid {kind.__name__}")
