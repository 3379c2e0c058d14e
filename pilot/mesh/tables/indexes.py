"""Indexes of the tables that hold connected proxies and what they reject."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from pilot.mesh.model.nack import Refusal, RefusalKey
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.model.telemetry_features import lacking

Buckets = Iterable[Hashable]


def proxy_type(_: str, proxy: Proxy) -> Buckets:
    return (proxy.type,)


def refused_objects(_: RefusalKey, refusal: Refusal) -> Buckets:
    return refusal.objects


def proxy_namespace(_: str, proxy: Proxy) -> Buckets:
    return (proxy.namespace,)


def proxy_lacks(_: str, proxy: Proxy) -> Buckets:
    """Returns the namespace of a proxy and what telemetry may need and its build does not have; () where it has everything."""
    return ((proxy.namespace, lacks),) if (lacks := lacking(proxy)) else ()
