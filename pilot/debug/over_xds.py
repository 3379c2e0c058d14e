"""Debug pages over xDS, which istioctl requests. There is one response per request.

https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/status/v3/csds.proto
"""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections.abc import Sequence
from typing import Any, NamedTuple

from envoy.admin.v3 import config_dump_pb2
from envoy.service.status.v3 import csds_pb2
from google.protobuf import any_pb2, json_format

from pilot.debug.access import sources_for, visible_sources
from pilot.debug.page import Refused, answer
from pilot.debug.page_routes import sections
from pilot.debug.pages.config_dump import config_dump
from pilot.debug.plain_json import parts
from pilot.debug.slices import collect_all
from pilot.debug.sources import ConnectedProxy, Sources, WatchedType
from pilot.lib.xds_types import DEBUG, DEBUG_PAGE

SYNCZ, CONFIG_DUMP = f"{DEBUG}syncz", f"{DEBUG}config_dump"
MAX_PAGE_LENGTH = 8 * 1024
"""Maximum length of the path and query of a page in characters, which is about as much as HTTP allows."""
_STATUS = csds_pb2.ConfigStatus
_NEVER = -62_135_596_800 * 10**9
"""Go's zero time in Unix nanoseconds. istioctl displays it for a type that has never been sent."""
del config_dump_pb2  # imported to register its messages, which a dump contains


class DebugResponse(NamedTuple):
    """A response that contains named resources. `identifier` identifies the control plane, if it is not ""."""

    resources: Sequence[tuple[str, any_pb2.Any]]
    identifier: str = ""


async def ask(sources: Sources, type_url: str, names: Sequence[str], identities: Sequence[str]) -> DebugResponse:
    """Return the response to a caller with these identities.

    Raise Refused with an HTTP status: 401 if there are no identities, 403 if access is denied, 400 if the number of
    names is wrong or the name is too long, or 409 if several proxies have the name.
    """
    if not sources.settings.pages or type_url not in (SYNCZ, CONFIG_DUMP, DEBUG_PAGE):
        return DebugResponse(())
    if type_url == DEBUG_PAGE:
        return await _page(sources, names, identities)
    visible = visible_sources(sources, identities) if sources.settings.endpoint_auth else sources
    if type_url == CONFIG_DUMP:
        return await _dump(visible, names)
    configs = await collect_all((c.id, client_config(c)) for c in visible.fleet.connections() if c.subscriptions)
    return await asyncio.to_thread(
        lambda: DebugResponse([(name, _pack(config)) for name, config in configs], identifier(sources))
    )


async def _page(sources: Sources, names: Sequence[str], identities: Sequence[str]) -> DebugResponse:
    """Return the body of a page. It is the same as over HTTP, even if it is an error message."""
    if not identities:
        raise Refused(401, "authentication required")
    if len(names) != 1:
        raise Refused(400, "exactly one debug request is expected")
    if len(names[0]) > MAX_PAGE_LENGTH:
        raise Refused(400, f"the debug request has more than {MAX_PAGE_LENGTH} characters")
    path, _, text = names[0].partition("?")
    query = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
    visible = sources_for(sources, f"/debug/{path}", identities)
    page = next(
        (page for pages in sections(sources.settings).values() for page in pages if page.path == f"/debug/{path}"), None
    )
    body = (await answer(page, visible, query)).body if page is not None else b"404 page not found\n"
    return DebugResponse([(names[0], any_pb2.Any(type_url=DEBUG_PAGE, value=body))])


async def _dump(sources: Sources, names: Sequence[str]) -> DebugResponse:
    """Return the parts of a proxy's config_dump, or an empty response if the proxy is not connected.

    Raise Refused with status 409 if several proxies have the name.
    """
    if len(names) != 1:
        raise Refused(400, "exactly one proxy is expected")
    try:
        dump = await config_dump(sources, {"proxyID": names[0]})
    except Refused as refused:
        if refused.status != 404:
            raise
        return DebugResponse(())
    return await asyncio.to_thread(
        lambda: DebugResponse(
            [(names[0], json_format.ParseDict(_whole(part), any_pb2.Any())) for part in dump.make()["configs"]]
        )
    )


def _whole(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a dump after evaluating its lazy fields."""
    evaluated: dict[str, Any] = json.loads(b"".join(parts(part, pretty=False)))
    return evaluated


def client_config(connection: ConnectedProxy) -> csds_pb2.ClientConfig:
    """Return the sync status of each type that a proxy subscribes to."""
    config = csds_pb2.ClientConfig()
    proxy = connection.proxy
    config.node.id = proxy.id
    config.node.metadata.update(
        {"CLUSTER_ID": proxy.cluster_id, "NAMESPACE": proxy.namespace, "ISTIO_VERSION": proxy.version}
    )
    for type_url, watch in sorted(connection.subscriptions.items()):
        entry = config.generic_xds_configs.add(type_url=type_url, config_status=_status(watch))
        entry.last_updated.FromNanoseconds(round(watch.sent_at * 1e9) if watch.sent_at else _NEVER)
        if watch.last_error:
            entry.error_state.details = watch.last_error
            entry.error_state.last_update_attempt.CopyFrom(entry.last_updated)
    return config


def _status(watch: WatchedType) -> Any:
    if watch.last_error:
        return _STATUS.ERROR
    if not watch.nonce_sent:
        return _STATUS.NOT_SENT
    return _STATUS.SYNCED if watch.nonce_sent == watch.nonce_acked else _STATUS.STALE


def identifier(sources: Sources) -> str:
    """Return the identifier of this control plane in the format that istioctl expects, with the Pod and the build."""
    build = sources.build
    info = {
        "version": build.version,
        "revision": build.revision,
        "golang_version": "",
        "status": build.status,
        "tag": build.tag,
    }
    return json.dumps({"Component": "istiod", "ID": sources.pod, "Info": info}, separators=(",", ":"))


def _pack(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
