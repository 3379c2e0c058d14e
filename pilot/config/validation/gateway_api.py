"""Validation of the host names of the Gateway API's objects from files. API servers validate them by their schema."""

from __future__ import annotations

from pilot.config.gateway_api.gateway import Gateway, ListenerSet
from pilot.config.gateway_api.grpc_route import GRPCRoute
from pilot.config.gateway_api.http_route import HTTPRoute
from pilot.config.gateway_api.l4_route import TLSRoute
from pilot.config.object import Object
from pilot.config.problem import Problems
from pilot.config.validation import rules


def validate_route_hosts(o: Object[HTTPRoute] | Object[GRPCRoute] | Object[TLSRoute]) -> Problems:
    for index, hostname in enumerate(o.spec.hostnames):
        yield from rules.check_host(f"spec.hostnames[{index}]", hostname)


def validate_listener_hosts(o: Object[Gateway] | Object[ListenerSet]) -> Problems:
    for index, listener in enumerate(o.spec.listeners):
        if listener.hostname:
            yield from rules.check_host(f"spec.listeners[{index}].hostname", listener.hostname)
