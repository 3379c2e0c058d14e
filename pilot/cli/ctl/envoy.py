"""Client for Envoy's admin interface, and access to the resources in its config_dump.

https://www.envoyproxy.io/docs/envoy/latest/operations/admin
"""

from __future__ import annotations

import json
import urllib.parse
from typing import Any, NamedTuple

from pilot.cli.ctl.client import CommandError
from pilot.cli.http_request import AddressError, UnreachableError, parse_address, send
from pilot.lib.suggestion import choices

ADMIN_PORT = 15000
SECONDS = 30.0
NODE_PARTS = 4
"""Number of parts of a node ID: TYPE~ADDRESS~ID~DOMAIN."""
Plain = dict[str, Any]


class _Part(NamedTuple):
    """The location of a resource type in a config_dump.

    `envelope` is the type of the enclosing message. `lists` are the names of its lists, each with the path from a list
    entry to the resource.
    """

    envelope: str
    lists: tuple[tuple[str, tuple[str, ...]], ...]


_HOW_TO_SAVE = (
    "save one with: kubectl exec POD -c istio-proxy -- pilot-agent request GET 'config_dump?include_eds' >FILE"
)
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
    """The configuration of an Envoy. `dump` is its config_dump, with field names in lowerCamelCase."""

    def __init__(self, dump: Plain) -> None:
        self._envelopes = [envelope for envelope in dump.get("configs", ()) if isinstance(envelope, dict)]

    def resources(self, short_type: str, dynamic: bool = False) -> list[Plain]:
        """Return the resources of a type. With `dynamic`, return only those from a control plane.

        A secret that Envoy has not received yet has only a name.
        """
        part = _PARTS[short_type]
        entries = []
        for envelope in self._all(part.envelope):
            for field, path in part.lists:
                if not dynamic or field.startswith("dynamic") or short_type == "ecds":
                    entries += [
                        _resource_at(entry, path) or _placeholder(entry, short_type)
                        for entry in envelope.get(field, ())
                    ]
        return [resource for resource in entries if resource]

    def bootstrap(self) -> Plain:
        """Return Envoy's bootstrap configuration. Raise CommandError if the dump contains none."""
        for envelope in self._all("BootstrapConfigDump"):
            config: Plain = envelope.get("bootstrap", {})
            return config
        raise CommandError("this dump contains no bootstrap, so it is not from an Envoy")

    def node(self) -> Plain:
        """Return the node in the bootstrap, or {} if the dump has none."""
        envelopes = self._all("BootstrapConfigDump")
        node: Plain = envelopes[0].get("bootstrap", {}).get("node", {}) if envelopes else {}
        return node

    def proxy_id(self) -> str:
        """Return the proxy's ID, which is the third part of a node ID, or "" if the dump does not contain it."""
        node_id = str(self.node().get("id", ""))
        parts = node_id.split("~")
        return parts[2] if len(parts) == NODE_PARTS else node_id

    def _all(self, envelope: str) -> list[Plain]:
        return [candidate for candidate in self._envelopes if str(candidate.get("@type", "")).endswith(f".{envelope}")]


def _resource_at(entry: Plain, path: tuple[str, ...]) -> Plain:
    """Return the resource at a path in a list entry, or {} if Envoy has not received it yet."""
    resource: Any = entry
    for field in path:
        resource = resource.get(field, {}) if isinstance(resource, dict) else {}
    name_field = {"name": entry["name"]} if "name" in entry else {}
    return {**name_field, **resource} if isinstance(resource, dict) and resource else {}


def _placeholder(entry: Plain, short_type: str) -> Plain:
    """Return a placeholder with only the name of a secret that Envoy waits for. Return {} for other types."""
    return {"name": entry.get("name", "")} if short_type == "sds" else {}


def read_dump(text: str, where: str, hint: str = _HOW_TO_SAVE) -> EnvoyDump:
    """Parse a config_dump. Raise CommandError with a hint if the text is not a config_dump."""
    dump = parse_dump(text, where, "a config_dump", f"; {hint}")
    if not isinstance(dump, dict) or not isinstance(dump.get("configs"), list):
        raise CommandError(f"{where} is not a config_dump: it has no list named configs; {hint}")
    return EnvoyDump(_camel(dump))


def parse_dump(text: str, where: str, expected: str, hint: str) -> Any:
    """Return the JSON value in a text. Raise CommandError with a hint if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        if text.lstrip()[:1] in ("{", "["):
            raise CommandError(f"{where} is not JSON: {error}{hint}") from error
        raise CommandError(f"{where} is not {expected}: it is not JSON, but YAML or another text{hint}") from error


def fetch_dump(address: str) -> EnvoyDump:
    """Fetch the config_dump of an Envoy, including endpoints. Raise CommandError if it is unreachable."""
    text = request_admin(address, "config_dump?include_eds")
    hint = f"--envoy takes Envoy's admin address, port {ADMIN_PORT} by default"
    return read_dump(text, f"the response of {address}", hint)


def set_levels(address: str, levels: dict[str, str]) -> str:
    """Set levels of Envoy's loggers and return Envoy's list of the resulting levels. "" selects all loggers."""
    text = request_admin(address, "logging", "POST") if not levels else ""
    for logger, level in levels.items():
        try:
            text = request_admin(address, f"logging?{urllib.parse.urlencode({logger or 'level': level})}", "POST")
        except CommandError:
            _check_logger(address, logger)
            raise
    return text


def _check_logger(address: str, logger: str) -> None:
    """Raise CommandError if an Envoy has no logger of a name."""
    lines = request_admin(address, "logging", "POST").splitlines()
    loggers = [line.strip().partition(":")[0] for line in lines if line.startswith(" ")]
    if logger and loggers and logger not in loggers:
        raise CommandError(f"--level: the Envoy has no logger {logger!r}{choices(logger, loggers)}")


def request_admin(address: str, page: str, method: str = "GET", program: str = "Envoy") -> str:
    """Return the body of an admin page. Raise CommandError if the program is unreachable or returns an error.

    The program is Envoy, or ztunnel, whose admin interface is similar. The option for its address has the same name.
    """
    option = f"--{program.lower()}"
    try:
        url = parse_address(address, ADMIN_PORT)
        response = send(f"{url}/{page}", method, seconds=SECONDS)
    except AddressError as error:
        raise CommandError(f"{option}: {error}") from error
    except UnreachableError as error:
        raise CommandError(f"cannot reach the {program} at {url}: {error}") from error
    if response.status != 200:
        path = page.partition("?")[0]
        reason = response.text.strip().partition("\n")[0]
        if response.status == 400 and reason:
            raise CommandError(f"the {program} at {url} rejected /{page}: {reason}")
        raise CommandError(
            f"{url}/{path} returned {response.status} {response.reason}; {option} takes {program}'s admin address, "
            f"port {ADMIN_PORT} by default"
        )
    return response.text


def _camel(value: Any) -> Any:
    """Convert the field names in Envoy's JSON to lowerCamelCase. The keys of maps are not converted."""
    if isinstance(value, dict):
        return {_camel_name(name): _member(name, member) for name, member in value.items()}
    return [_camel(member) for member in value] if isinstance(value, list) else value


def _member(field: str, value: Any) -> Any:
    """Return the converted value of a field. The field names of free-form structs are not converted."""
    if field in ("fields", "static_layer"):
        return value
    if field == "node" and isinstance(value, dict):
        return {**_camel(value), "metadata": value.get("metadata", {})}
    return _camel(value)


def _camel_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
