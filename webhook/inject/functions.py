"""Istio's own functions of templates. They take the place of Sprig's where both have one of a name."""

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
from pilot.lib.log import scope
from webhook.inject.message import Span, TemplateMessage
from webhook.inject.otel import resource_attributes
from webhook.inject.protobuf_json import message_json

_log = scope("webhook")
_BUILT_IN = ProxyConfig()
PROXY = "istio-proxy"


def annotation(metadata: GoStruct, name: str, default: Any) -> str:
    """Returns the value of an annotation, or a default as text."""
    found = metadata.member("Annotations").get(name)
    return to_text(default) if found is None else str(found)


def exclude_inbound_port(port: Any, excluded: str) -> str:
    """Returns the ports with one more, unless it is 0 or among them."""
    wanted = to_text(port).strip()
    ports = excluded.split(",")
    if wanted in ("", "0", *ports):
        return excluded
    return ",".join([*filter(None, (p.strip() for p in ports)), wanted])


def value_or_default(value: Any, default: Any) -> Any:
    """Returns a value, or the default where it is nil or the empty text."""
    return default if value is None or (isinstance(value, str) and value == "") else value


def json_of_texts(texts: Any) -> str:
    """Returns a map of text as JSON."""
    return go_json.dumps(texts or {})


def from_json(text: str) -> Any:
    """Returns what a JSON text says; the text "{}" where it is none."""
    try:
        return go_json.loads(text)
    except ValueError:
        _log.warning("unable to unmarshal %s", text)
        return "{}"


def json_of(value: Any) -> str:
    """Returns a value as JSON; an empty object where it has none."""
    try:
        return "{}" if value is None else go_json.dumps(value)
    except ValueError:
        return "{}"


def json_of_message(value: Any) -> str:
    """Returns a message in protobuf's JSON; of a proxy config only what differs from the built-in one."""
    if not isinstance(value, TemplateMessage) or value.empty:
        return "{}"
    message = value.message
    return message_json(message, _BUILT_IN if isinstance(message, ProxyConfig) else None)


def yaml_of(value: Any) -> str:
    """Returns a value as YAML."""
    return go_yaml.dump(value)


def indent_rest(spaces: int, text: str) -> str:
    """Returns the text with spaces before every line but the first one."""
    return text.replace("\n", "\n" + " " * spaces)


def append_multus_network(existing: str, network: str) -> str:
    """Returns the networks of an annotation with one more, unless it is among them: a list in JSON, or names between commas."""
    if not existing:
        return network
    end = existing.rfind("]")
    if end == -1:
        return existing if network in (part.strip() for part in existing.split(",")) else f"{existing}, {network}"
    namespace, _, name = network.rpartition("/")
    try:
        known = msgspec.json.decode(existing, type=list[dict[str, Any]])
    except msgspec.DecodeError:
        _log.warning("unable to unmarshal the networks %s", existing)
        return existing
    if any(item.get("name") == name and (item.get("namespace") or "") == namespace for item in known):
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
    """Returns the map of keys and values in turn."""
    padded = (*pairs, "") if len(pairs) % 2 else pairs
    return StringMap(zip(padded[::2], padded[1::2], strict=True))


def merge_maps(*maps: Any) -> StringMap:
    """Returns the keys of all maps, of equal ones the last."""
    return StringMap((key, value) for found in maps for key, value in (found or {}).items())


def omit_nil(value: Any) -> Any:
    """Returns a value without what is nil in it, and without what becomes empty by that; nil where nothing is left."""
    if isinstance(value, dict):
        kept = {key: found for key, item in value.items() if (found := omit_nil(item)) is not None}
        return kept if kept or not value else None
    if isinstance(value, list):
        items = [found for item in value if (found := omit_nil(item)) is not None]
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


def _omit(found: Any, *keys: str) -> StringMap:
    return StringMap((key, value) for key, value in (found or {}).items() if key not in keys)


FUNCTIONS: dict[str, Function] = {
    **SPRIG,
    "formatDuration": takes("pointer", _duration),
    "isset": takes("texts string", lambda found, key: key in (found or {})),
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
