"""The list of all pages below /debug, by what they are about."""

from __future__ import annotations

from typing import Any

from pilot.debug import (
    ambient,
    authz,
    caches,
    config_dump,
    configuration,
    describe,
    explain,
    fleet,
    mcs,
    push_context,
    push_status,
    registry,
    scope,
    statuses,
    telemetry,
)
from pilot.debug.page import Page, Query
from pilot.debug.profiles import PAGES
from pilot.debug.sources import Sources
from pilot.settings.process import DebugSettings


def page_list(sources: Sources, query: Query) -> Any:
    """Returns every page by its name, with the queries that do something else; as istioctl completes them."""
    shown = sections(sources.settings).values()
    names = [page.path.removeprefix("/debug/") for pages in shown for page in pages if page.listed]
    return sorted([*names, "adsz?push=true", "cachez?sizes=true", "cachez?clear=true"])


_SECTIONS: dict[str, tuple[Page, ...]] = {
    "All proxies": (
        Page("/debug/syncz", "What each proxy was sent and acknowledged, by type", fleet.syncz, ("namespace=default",)),
        Page("/debug/adsz", "Who is connected, with metadata and watches", fleet.adsz, ("push=true",)),
        Page("/debug/connections", "Who is connected, briefly", fleet.connections),
    ),
    "One proxy": tuple(
        Page(path, about, answer, of_proxy=True)
        for path, about, answer in (
            (
                "/debug/config_dump",
                "All that it is to have, as Envoy's config_dump shows it; include_eds, types=cds,lds",
                config_dump.config_dump,
            ),
            ("/debug/edsz", "Its endpoints", config_dump.only("eds")),
            ("/debug/ecdsz", "Its extension configurations", config_dump.only("ecds")),
            ("/debug/ndsz", "Its name table", config_dump.only("nds")),
            ("/debug/sidecarz", "Which services it sees", scope.sidecarz),
            ("/debug/describe", "What applies to it, in short: services, routes, rules, policies", describe.describe),
            (
                "/debug/authz",
                "Which AuthorizationPolicies it has; request={…} as JSON: which of them decides",
                authz.authz,
            ),
            (
                "/debug/explain",
                "Which objects one of its resources was made from; type=cds where names repeat",
                explain.explain_page,
            ),
        )
    ),
    "Configuration": (
        Page("/debug/problemz", "What is wrong with users' objects", configuration.problemz),
        Page(
            "/debug/statusz",
            "What becomes of objects of the Gateway API and of Ingresses; namespace, kind",
            statuses.statusz,
            ("pretty",),
        ),
        Page("/debug/configz", "Every object of Istio's kinds", configuration.configz, ("pretty",)),
        Page("/debug/resourcesz", "Which kinds are read", configuration.resourcesz),
        Page("/debug/authorizationz", "Every AuthorizationPolicy, by namespace", configuration.authorizationz),
        Page(
            "/debug/telemetryz",
            "Every Telemetry, by namespace; with proxyID those that count for it",
            telemetry.telemetryz,
            ("pretty",),
        ),
        Page("/debug/mesh", "The mesh config in force", configuration.mesh, ("pretty",)),
        Page("/debug/inject", "The templates of injection", configuration.inject, ("pretty",)),
        Page(
            "/debug/push_status",
            "What is odd: services without endpoints, proxies without services …",
            push_status.push_status,
        ),
        Page(
            "/debug/pushcontext",
            "Authorization policies, and gateways between networks",
            push_context.pushcontext,
            ("pretty",),
        ),
    ),
    "Registry": (
        Page("/debug/registryz", "Every service", registry.registryz),
        Page("/debug/endpointShardz", "Every endpoint, by host and namespace", registry.endpoint_shardz),
        Page("/debug/endpointz", "The same under its old name", registry.endpoint_shardz),
        Page("/debug/instancesz", "Which services each connected proxy serves", registry.instancesz),
        Page("/debug/networkz", "Gateways between networks", registry.networkz),
        Page("/debug/clusterz", "Clusters whose services are known", registry.clusterz),
        Page("/debug/mcsz", "Services that clusters export and import (MCS)", mcs.mcsz),
        Page("/debug/ambientz", "What ztunnels are told", ambient.ambientz, ("pretty",)),
    ),
    "This process": (
        Page(
            "/debug/cachez",
            "Which serialized resources are kept, and how much they take",
            caches.cachez,
            ("sizes=true", "clear=true"),
        ),
        Page("/debug/krtz", "Which derived values are kept, and what reads them", caches.krtz, ("pretty",)),
    ),
    "This page": (Page("/debug/list", "The names of all pages, as JSON", page_list, listed=False),),
}
_UNSAFE = {"Administration": (Page("/debug/force_disconnect", "End the stream of proxyID", fleet.force_disconnect),)}


def sections(settings: DebugSettings) -> dict[str, tuple[Page, ...]]:
    """Returns the pages that are served, by title."""
    shown = _SECTIONS | {"Profiles": PAGES} if settings.profiles else _SECTIONS
    return shown | _UNSAFE if settings.unsafe_admin else shown
