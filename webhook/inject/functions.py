"""Istio's template functions. They replace Sprig's functions with the same names."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from gotemplate import go_json, go_yaml
from gotemplate.function import Function, takes
from gotemplate.functions import SPRIG
from gotemplate.printing import to_text
from gotemplate.values import GoStruct, StringMap
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.lib.duration import format_duration
from pilot.lib.logging.log import scope
from webhook.inject.message import Span, TemplateMessage
from webhook.inject.otel import resource_attributes
from webhook.inject.protobuf_json import message_json

_log = scope("webhook")
_BUILT_IN = ProxyConfig()
PROXY = "istio-proxy"


def annotation(metadata: GoStruct, name: str, default: Any) -> str:
    """Return the value of an annotation. If it is absent, return the default as a string."""
    value = metadata.member("Annotations").get(name)
    return to_text(default) if value is None else str(value)


def exclude_inbound_port(port: Any, excluded: str) -> str:
    """Return the excluded ports with a port added, unless the port is 0 or already excluded."""
    text = to_text(port).strip()
    ports = excluded.split(",")
    if text in ("", "0", *ports):
        return excluded
    return ",".join([*filter(None, (p.strip() for p in ports)), text])


def value_or_default(value: Any, default: Any) -> Any:
    """Return the value, or the default if the value is nil or an empty string."""
    return default if value is None or (isinstance(value, str) and value == "") else value


def json_of_texts(texts: Any) -> str:
    """Return a map of strings as JSON."""
    return go_json.dumps(texts or {})


def from_json(text: str) -> Any:
    """Parse JSON. Return the string "{}" if the JSON is invalid."""
    try:
        return go_json.loads(text)
    except ValueError:
        _log.warning("unable to unmarshal %s", text)
        return "{}"


def json_of(value: Any) -> str:
    """Return a value as JSON, or "{}" if it is nil or cannot be encoded."""
    try:
        return "{}" if value is None else go_json.dumps(value)
    except ValueError:
        return "{}"


def json_of_message(value: Any) -> str:
    """Return a message as protobuf JSON. For a ProxyConfig, include only the differences from the defaults."""
    if not isinstance(value, TemplateMessage) or value.empty:
        return "{}"
    message = value.message
    return message_json(message, _BUILT_IN if isinstance(message, ProxyConfig) else None)


def yaml_of(value: Any) -> str:
    """Return a value as YAML."""
    return go_yaml.dump(value)


def indent_rest(spaces: int, text: str) -> str:
    """Indent every line except the first."""
    return text.replace("\n", "\n" + " " * spaces)


def append_multus_network(existing: str, network: str) -> str:
    """Return the value of an annotation with a network added, unless the network is present.

    The value is a JSON list or a comma-separated list of names.
    """
    if not existing:
        return network
    end = existing.rfind("]")
    if end == -1:
        return existing if network in (part.strip() for part in existing.split(",")) else f"{existing}, {network}"
    namespace, _, name = network.rpartition("/")
    try:
        networks = msgspec.json.decode(existing, type=list[dict[str, Any]])
    except msgspec.DecodeError:
        _log.warning("unable to unmarshal the networks %s", existing)
        return existing
    if any(item.get("name") == name and (item.get("namespace") or "") == namespace for item in networks):
        return existing
    more = f'{{"name": "{name}", "namespace": "{namespace}"}}' if namespace else f'{{"name": "{name}"}}'
    return f"{existing[:end]}, {more}{existing[end:]}"


def _ports(containers: Any, but: str = "") -> str:
    numbers = (
        str(port.member("ContainerPort"))
        for container in containers or ()
        if container.member("Name") != but
        for port in container.member("Ports")
        if port.member("Protocol") not in ("UDP", "SCTP")
    )
    return ",".join(numbers)


def string_dict(*pairs: str) -> StringMap:
    """Return a map of strings. The arguments are alternating keys and values."""
    padded = (*pairs, "") if len(pairs) % 2 else pairs
    return StringMap(zip(padded[::2], padded[1::2], strict=True))


def merge_maps(*maps: Any) -> StringMap:
    """Merge maps. If several maps have the same key, the last one wins."""
    return StringMap((key, value) for mapping in maps for key, value in (mapping or {}).items())


def omit_nil(value: Any) -> Any:
    """Return a value without nils and without containers that are empty as a result. Return nil if nothing remains."""
    if isinstance(value, dict):
        entries = {key: cleaned for key, item in value.items() if (cleaned := omit_nil(item)) is not None}
        return entries if entries or not value else None
    if isinstance(value, list):
        items = [cleaned for item in value if (cleaned := omit_nil(item)) is not None]
        return items if items or not value else None
    return value


def _otel(mesh: Any, annotations: Any, labels: Any, namespace: str, containers: Any) -> str:
    config = (
        mesh.message if isinstance(mesh, TemplateMessage) and isinstance(mesh.message, MeshConfig) else MeshConfig()
    )
    named = [(c.member("Name"), c.member("Image")) for c in containers or ()]
    return resource_attributes(config, annotations or {}, labels or {}, namespace, named)


def _duration(span: Any) -> str:
    return format_duration(span.duration) if isinstance(span, Span) else "0s"


def _omit(mapping: Any, *keys: str) -> StringMap:
    return StringMap((key, value) for key, value in (mapping or {}).items() if key not in keys)


FUNCTIONS: dict[str, Function] = {
    **SPRIG,
    "formatDuration": takes("pointer", _duration),
    "isset": takes("texts string", lambda mapping, key: key in (mapping or {})),
    "excludeInboundPort": takes("any string", exclude_inbound_port),
    "includeInboundPorts": takes("list", _ports),
    "applicationPorts": takes("list", lambda containers: _ports(containers, PROXY)),
    "kubevirtInterfaces": takes("string", lambda text: text),
    "excludeInterfaces": takes("string", lambda text: text),
    "annotation": takes("struct string any", annotation),
    "valueOrDefault": takes("any any", value_or_default),
    "toJSON": takes("texts", json_of_texts),
    "fromJSON": takes("string", from_json),
    "structToJSON": takes("any", json_of),
    "protoToJSON": takes("pointer", json_of_message),
    "toYaml": takes("any", yaml_of),
    "indent": takes("int string", indent_rest),
    "directory": takes("string", lambda path: path[: path.rfind("/") + 1]),
    "contains": takes("string string", lambda needle, haystack: needle in haystack),
    "toLower": takes("string", str.lower),
    "appendMultusNetwork": takes("string string", append_multus_network),
    "env": takes("string string", lambda name, default: os.environ.get(name) or default),
    "omit": takes("texts ...string", _omit),
    "strdict": takes("...string", string_dict),
    "toJsonMap": takes("...texts", lambda *maps: go_json.dumps(merge_maps(*maps))),
    "mergeMaps": takes("...texts", merge_maps),
    "omitNil": takes("any", omit_nil),
    "otelResourceAttributes": takes("pointer texts texts string list", _otel),
}
