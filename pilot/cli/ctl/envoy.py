"""Questions to the admin port of an Envoy, and its config_dump as resources.

https://www.envoyproxy.io/docs/envoy/latest/operations/admin
"""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from pilot.cli.ctl.client import CommandError

SECONDS = 30.0
Plain = dict[str, Any]


class _Part(NamedTuple):
    """Where the resources of a type stand in a config_dump: the envelope's message, and in it lists, each with the field of the resource."""

    envelope: str
    lists: tuple[tuple[str, tuple[str, ...]], ...]


_PARTS = {
    "cds": _Part("ClustersConfigDump", (("dynamicActiveClusters", ("cluster",)), ("staticClusters", ("cluster",)))),
    "lds": _Part(
        "ListenersConfigDump", (("dynamicListeners", ("activeState", "listener")), ("staticListeners", ("listener",)))
    ),
    "rds": _Part(
        "RoutesConfigDump", (("dynamicRouteConfigs", ("routeConfig",)), ("staticRouteConfigs", ("routeConfig",)))
    ),
    "eds": _Part(
        "EndpointsConfigDump",
        (("dynamicEndpointConfigs", ("endpointConfig",)), ("staticEndpointConfigs", ("endpointConfig",))),
    ),
    "sds": _Part(
        "SecretsConfigDump",
        tuple((name, ("secret",)) for name in ("dynamicActiveSecrets", "dynamicWarmingSecrets", "staticSecrets")),
    ),
    "ecds": _Part("EcdsConfigDump", (("ecdsFilters", ("ecdsFilter",)),)),
}


class EnvoyDump:
    """What an Envoy says that it has. `dump` is its config_dump, with names of fields as JSON of protobuf usually has them."""

    def __init__(self, dump: Plain) -> None:
        self._envelopes = [envelope for envelope in dump.get("configs", ()) if isinstance(envelope, dict)]

    def resources(self, short_type: str, dynamic: bool = False) -> list[Plain]:
        """Returns the resources of a type; with `dynamic` only those that a control plane gave. A secret that Envoy waits for has a name alone."""
        part = _PARTS[short_type]
        found = []
        for envelope in self._all(part.envelope):
            for field, path in part.lists:
                if not dynamic or field.startswith("dynamic") or short_type == "ecds":
                    found += [_within(entry, path) or _awaited(entry, short_type) for entry in envelope.get(field, ())]
        return [resource for resource in found if resource]

    def bootstrap(self) -> Plain:
        """Returns the configuration that the Envoy started with; CommandError where the dump does not have it."""
        for envelope in self._all("BootstrapConfigDump"):
            found: Plain = envelope.get("bootstrap", {})
            return found
        raise CommandError("this dump has no bootstrap: it is not of an Envoy")

    def _all(self, envelope: str) -> list[Plain]:
        return [found for found in self._envelopes if str(found.get("@type", "")).endswith(f".{envelope}")]


def _within(entry: Plain, path: tuple[str, ...]) -> Plain:
    """Returns the resource of an entry of a list; {} where it is not there yet."""
    found: Any = entry
    for field in path:
        found = found.get(field, {}) if isinstance(found, dict) else {}
    named = {"name": entry["name"]} if "name" in entry else {}
    return {**named, **found} if isinstance(found, dict) and found else {}


def _awaited(entry: Plain, short_type: str) -> Plain:
    """Returns a secret that an Envoy waits for, which has a name alone; {} for anything else, which is left out."""
    return {"name": entry.get("name", "")} if short_type == "sds" else {}


def read_dump(text: str, where: str) -> EnvoyDump:
    """Returns the dump that a text holds; CommandError where it holds none."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CommandError(f"{where} holds no JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("configs"), list):
        raise CommandError(f"{where} is no config_dump: it has no list named configs")
    return EnvoyDump(_camel(found))


def fetch_dump(address: str) -> EnvoyDump:
    """Returns all that an Envoy has; CommandError where it cannot be asked."""
    return read_dump(ask(address, "config_dump?include_eds"), f"the answer of {address}")


def set_levels(address: str, levels: dict[str, str]) -> str:
    """Sets the levels of an Envoy's loggers, "" for all of them; returns the levels in force, as Envoy writes them."""
    text = ask(address, "logging", "POST") if not levels else ""
    for logger, level in levels.items():
        text = ask(address, f"logging?{urllib.parse.urlencode({logger or 'level': level})}", "POST")
    return text


def ask(address: str, page: str, method: str = "GET") -> str:
    """Returns the text of a page of an Envoy's admin port. CommandError where it does not answer or refuses."""
    url = f"{(address if '://' in address else f'http://{address}').rstrip('/')}/{page}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=SECONDS) as response:
            text: str = response.read().decode(errors="replace")
            return text
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot ask the Envoy at {address}: {getattr(error, 'reason', error)}") from error


def _camel(value: Any) -> Any:
    """Returns JSON with the field names that the control plane writes, of JSON as Envoy writes it. Names that are no field's stay as they are."""
    if isinstance(value, dict):
        return {_camel_name(name): _member(name, member) for name, member in value.items()}
    return [_camel(member) for member in value] if isinstance(value, list) else value


def _member(field: str, value: Any) -> Any:
    """Returns the value of a field; structs whose members are named by whoever wrote them are left as they are."""
    if field in ("fields", "static_layer"):
        return value
    if field == "node" and isinstance(value, dict):
        return {**_camel(value), "metadata": value.get("metadata", {})}
    return _camel(value)


def _camel_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
