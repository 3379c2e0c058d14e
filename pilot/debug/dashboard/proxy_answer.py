"""One proxy: its status by type, its services, and the names of its resources."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pilot.config.problem import plain_ref
from pilot.debug.dashboard.fleet import snapshot_stream
from pilot.debug.dashboard.mesh import services_of_proxy
from pilot.debug.hidden_services import effect_on_proxy
from pilot.debug.page import NOT_CONNECTED, Refused
from pilot.debug.pages.config_dump import plain, resources_of
from pilot.debug.slices import collect_all
from pilot.debug.sources import ConnectedProxy, Sources
from pilot.lib.xds_types import BY_SHORT_NAME, short_name
from pilot.mesh.analysis.nack import likely_causes
from pilot.mesh.model.nack import NackKey

MAX_NAMES = 300
"""Maximum number of resources that are listed. The page can search for others."""


def connection_of(sources: Sources, proxy_id: str) -> ConnectedProxy:
    """Return the stream with this ID, or else the stream of the proxy with this ID. Raise Refused if there is none."""
    by_proxy = None
    for connection in sources.fleet.connections():
        if connection.id == proxy_id:
            return connection
        if connection.proxy.id == proxy_id:
            by_proxy = connection
    if by_proxy is None:
        raise Refused(404, NOT_CONNECTED)
    return by_proxy


def describe_proxy(sources: Sources, proxy_id: str) -> dict[str, Any]:
    """Return the status of a proxy as a JSON object, with the objects that cause each rejection.

    `acknowledged` says whether the proxy has acknowledged any response of a type since it connected.
    """
    connection = connection_of(sources, proxy_id)
    db, now = sources.db, time.time()
    types = []
    for url, watch in connection.subscriptions.items():
        nack = db.nacks.peek(NackKey(connection.proxy_key, url)) if watch.last_error else None
        waits = bool(watch.sent_at) and watch.nonce_sent != watch.nonce_acked and not watch.last_error
        types.append(
            {
                "type": short_name(url),
                "sent": watch.sent_at,
                "waits": waits,
                "acknowledged": bool(watch.nonce_acked),
                "error": watch.last_error,
                "since": watch.rejected_since if watch.last_error else 0.0,
                "causes": [plain_ref(ref) for ref in likely_causes(nack.objects)] if nack is not None else [],
            }
        )
    proxy, effect = connection.proxy, effect_on_proxy(db, connection.proxy_key)
    return {
        **snapshot_stream(connection).row.plain(now),
        "proxy": proxy.id,
        "address": connection.address,
        "ips": proxy.ips[:10],
        "services": services_of_proxy(db, connection.proxy_key),
        "types": types,
        "sidecar": effect.plain() if effect is not None else None,
    }


async def list_resources(sources: Sources, proxy_id: str, short_type: str, text: str) -> dict[str, Any]:
    """Return the names of a proxy's resources of a type that contain `text`. At most `MAX_NAMES` are returned."""
    url = BY_SHORT_NAME.get(short_type)
    if url is None:
        raise Refused(400, f"unknown type {short_type!r}; valid types are {', '.join(BY_SHORT_NAME)}\n")
    resources = resources_of(sources, connection_of(sources, proxy_id), url)
    names = await collect_all(r.name for r in resources if text.lower() in r.name.lower())
    return {"total": len(names), "names": sorted(names)[:MAX_NAMES]}


async def show_resource(sources: Sources, proxy_id: str, short_type: str, name: str) -> dict[str, Any]:
    """Return one resource of a proxy as JSON. Private keys are redacted. Raise Refused if there is none."""
    url = BY_SHORT_NAME.get(short_type, "")
    for resource in resources_of(sources, connection_of(sources, proxy_id), url):
        if resource.name == name:
            return await asyncio.to_thread(plain, resource)
    raise Refused(404, f"the proxy has no resource {name!r}\n")
