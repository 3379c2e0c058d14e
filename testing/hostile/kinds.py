"""The kinds of hostile input, and the entrances that take them."""

from __future__ import annotations

from typing import NamedTuple

from testing.hostile import callers, envoy_values, http, many_objects, objects, policies
from testing.hostile.search import Build

SOURCES = ("file", "apiserver")
OBJECT_ENTRANCES = (*SOURCES, "/validate")
HTTP_ENTRANCES = ("8080", "15014", "15017")
SAME_CODE = frozenset({"15012 xDS", "15014"})
"""Entrances that differ from others only in transport. The search leaves them out."""


class Kind(NamedTuple):
    """A kind of input."""

    build: Build
    entrances: tuple[str, ...]


KINDS: dict[str, Kind] = {
    **{name: Kind(build, OBJECT_ENTRANCES) for name, build in objects.CONFIGURATION.items()},
    "many objects": Kind(many_objects.many_objects, SOURCES),
    "EnvoyFilter patches": Kind(envoy_values.envoy_filter_patches, OBJECT_ENTRANCES),
    "JWT rule fields": Kind(policies.jwt_rules, OBJECT_ENTRANCES),
    "Gateway server fields": Kind(policies.gateway_server_fields, SOURCES),
    "Gateway API listeners": Kind(policies.gateway_listeners, SOURCES),
    "YAML text": Kind(objects.yaml_text, ("file",)),
    "overlays of Gateways": Kind(objects.yaml_text, ("overlay",)),
    "Pods": Kind(objects.pods, ("/inject",)),
    "node metadata": Kind(callers.node_metadata, ("15010", "15012 xDS")),
    "subscriptions": Kind(callers.subscriptions, ("15010", "15012 xDS")),
    "debug requests": Kind(callers.debug_requests, ("15010", "15012 xDS")),
    "tokens": Kind(callers.tokens, ("15012",)),
    "certificate requests": Kind(callers.certificate_requests, ("15012",)),
    "forwarded certificates": Kind(callers.forwarded_certificates, ("15012",)),
    "HTTP requests": Kind(callers.pages, HTTP_ENTRANCES),
    "HTTP bodies": Kind(callers.bodies, HTTP_ENTRANCES),
    "HTTP encodings": Kind(http.encoded_bodies, HTTP_ENTRANCES),
    "HTTP queries": Kind(http.queries, HTTP_ENTRANCES),
}
"""Kinds by name."""
