"""Values of patches that Envoy rejects when it builds the resource, and similar ones that it accepts."""

from __future__ import annotations

import pathlib
from typing import NamedTuple

import yaml

from testing.mesh.objects import Plain

_TABLE = pathlib.Path(__file__).with_name("envoy_rules.yaml")
_MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER = {
    "name": "router",
    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
}


class RuleCase(NamedTuple):
    """A value of a patch that adds an object, and `PLACE: TEXT` of its fault, which is "" if Envoy accepts it."""

    name: str
    apply_to: str
    value: Plain
    fault: str

    def bootstrap(self) -> Plain:
        """Return the configuration of an Envoy with the value."""
        cluster, listener = {"name": "c", "type": "STATIC"}, _listener([_manager({})])
        if self.apply_to == "CLUSTER":
            cluster = self.value
        elif self.apply_to == "LISTENER":
            listener = self.value
        elif self.apply_to == "FILTER_CHAIN":
            listener = {**listener, "filter_chains": [self.value]}
        else:
            listener = _listener([self._network_filter()])
        # Envoy requires a node for secrets from a control plane.
        return {
            "node": {"id": "x", "cluster": "x"},
            "static_resources": {"clusters": [cluster], "listeners": [listener]},
        }

    def _network_filter(self) -> Plain:
        if self.apply_to == "NETWORK_FILTER":
            return self.value
        if self.apply_to == "HTTP_FILTER":
            return _manager({"http_filters": [self.value, _ROUTER]})
        host = {"name": "x", "domains": ["*"], "routes": [self.value]} if self.apply_to == "HTTP_ROUTE" else self.value
        return _manager({"route_config": {"virtual_hosts": [host]}})


def _listener(filters: list[Plain]) -> Plain:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    return {"name": "x", "address": address, "filter_chains": [{"filters": filters}]}


def _manager(more: Plain) -> Plain:
    return {
        "name": "http",
        "typed_config": {
            "@type": _MANAGER,
            "stat_prefix": "http",
            "route_config": {},
            "http_filters": [_ROUTER],
            **more,
        },
    }


def _read(name: str, row: Plain) -> RuleCase:
    fault = row.pop("fault", "")
    [(kind, value)] = row.items()
    if kind == "HTTP_MANAGER":
        return RuleCase(name, "NETWORK_FILTER", _manager(value), f"typed_config.{fault}" if fault else "")
    if kind in ("CLUSTER", "LISTENER"):
        value = {"name": "c", **value}
    return RuleCase(name, kind, value, fault)


CASES = [_read(name, row) for name, row in yaml.safe_load(_TABLE.read_text()).items()]
