"""Objects of a mesh that this control plane treats more strictly than istiod, and the settings that allow them."""

from __future__ import annotations

import ipaddress
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pilot.agent.wasm.image_registry import parse_image
from pilot.config.problem import Problem, Severity

_JWKS_SETTING = "PILOT_ALLOWED_CIDRS_IN_JWKS_URIS"
_WASM_SETTING = "ALLOWED_CIDRS_IN_WASM_FETCH"
_REFUSED_START = ("MeshConfig", "MeshNetworks")
"""Kinds because of which the control plane refuses to start."""
_IN_CLUSTER = (".svc", ".svc.cluster.local")


class Strictness(NamedTuple):
    """An object with different behaviour here, and what to do about it."""

    object: str
    message: str
    remedy: str


def refused_objects(problems: Iterable[Problem]) -> Iterator[Strictness]:
    """Yield the objects in the API server that this control plane rejects."""
    for problem in problems:
        if problem.severity is Severity.ERROR:
            yield Strictness(
                str(problem.object),
                f"is rejected here: {problem.path}: {problem.message}" if problem.path else problem.message,
                "correct it before the cutover, or start with --allow-invalid-mesh-config"
                if problem.object.kind.name in _REFUSED_START
                else "correct the object before the cutover",
            )


def private_key_sets(objects: Iterable[Mapping[str, Any]]) -> Iterator[Strictness]:
    """Yield the RequestAuthentications whose key sets are at private addresses."""
    for plain in objects:
        if plain.get("kind") != "RequestAuthentication":
            continue
        metadata = plain.get("metadata", {})
        for rule in (plain.get("spec") or {}).get("jwtRules") or ():
            uri = rule.get("jwksUri") or rule.get("jwks_uri") or ("" if rule.get("jwks") else rule.get("issuer", ""))
            if uri and is_private(uri):
                yield Strictness(
                    f"RequestAuthentication {metadata.get('namespace', '')}/{metadata.get('name', '')}",
                    f"the key set at {uri} is not fetched here, because its address is private",
                    f"set {_JWKS_SETTING} to the range of the address",
                )


def private_modules(objects: Iterable[Mapping[str, Any]]) -> Iterator[Strictness]:
    """Yield the WasmPlugins and TrafficExtensions whose modules are at private addresses."""
    for plain in objects:
        spec = plain.get("spec") or {}
        module = {"WasmPlugin": spec, "TrafficExtension": spec.get("wasm") or {}}.get(plain.get("kind", ""), {})
        url = str(module.get("url") or "")
        if url and is_private(_module_location(url)):
            metadata = plain.get("metadata", {})
            yield Strictness(
                f"{plain['kind']} {metadata.get('namespace', '')}/{metadata.get('name', '')}",
                f"agents do not fetch the module at {url}, because its address is private",
                f"set {_WASM_SETTING} of the agents to the range of the address, in defaultConfig.proxyMetadata",
            )


def _module_location(url: str) -> str:
    """Return the URL of a module's server: for an image, its registry."""
    scheme, separator, image = url.rpartition("://")
    if separator and scheme != "oci":
        return url
    try:
        return f"oci://{parse_image(image).registry}"
    except ValueError:
        return ""


def is_private(uri: str) -> bool:
    """Return whether a URL has a private address, or the name of a Service, whose address is private."""
    try:
        host = urllib.parse.urlsplit(uri).hostname or ""
    except ValueError:
        return False
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host.endswith(_IN_CLUSTER) or (bool(host) and "." not in host)
