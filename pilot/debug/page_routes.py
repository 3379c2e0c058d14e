"""The list of all pages below /debug, grouped by topic."""

from __future__ import annotations

from typing import Any

from pilot.debug.page import Page, Query
from pilot.debug.pages import (
    ambient,
    authz,
    caches,
    certificates,
    config_dump,
    configuration,
    describe,
    explain,
    fleet,
    mcs,
    push_context,
    push_status,
    registry,
    rollout,
    scope,
    statuses,
    telemetry,
)
from pilot.debug.pages.profiles import PAGES
from pilot.debug.sources import Sources
from pilot.settings.process import DebugSettings


def page_list(sources: Sources, query: Query) -> Any:
    """Return the names of all pages, for istioctl's shell completion. The list includes some queries, even with side
    effects."""
    page_lists = sections(sources.settings).values()
    names = [page.path.removeprefix("/debug/") for pages in page_lists for page in pages if page.listed]
    return sorted([*names, "adsz?push=true", "cachez?sizes=true", "cachez?clear=true"])


_SECTIONS: dict[str, tuple[Page, ...]] = {
    "All proxies": (
        Page(
            "/debug/syncz",
            "Sync status of each proxy by type",
            fleet.syncz,
            ("namespace=default",),
            optional_proxy=True,
        ),
        Page(
            "/debug/adsz",
            "Connected proxies with metadata and subscriptions",
            fleet.adsz,
            ("push=true",),
            optional_proxy=True,
        ),
        Page("/debug/connections", "Connected proxies", fleet.connections),
    ),
    "One proxy": tuple(
        Page(path, about, answer, of_proxy=True)
        for path, about, answer in (
            (
                "/debug/config_dump",
                "Configuration in the format of Envoy's config_dump; include_eds, types=cds,lds",
                config_dump.config_dump,
            ),
            ("/debug/edsz", "Endpoints", config_dump.only("eds")),
            ("/debug/ecdsz", "Extension configurations", config_dump.only("ecds")),
            ("/debug/ndsz", "DNS name table", config_dump.only("nds")),
            ("/debug/sidecarz", "Sidecar scope: the visible services", scope.sidecarz),
            ("/debug/describe", "Summary: services, routes, rules, policies", describe.describe),
            (
                "/debug/authz",
                "AuthorizationPolicies, and the decision about request={…} in JSON",
                authz.authz,
            ),
            (
                "/debug/explain",
                "Objects that a resource was built from; type=cds if a name is ambiguous",
                explain.explain_page,
            ),
        )
    ),
    "Configuration": (
        Page(
            "/debug/rollout",
            "Delivery of the last change of an object; kind, namespace, name, generation",
            rollout.rollout,
        ),
        Page("/debug/history", "Last changes: their delivery, derivations and bytes", rollout.history, ("pretty",)),
        Page("/debug/problemz", "Problems of users' objects", configuration.problemz),
        Page(
            "/debug/statusz",
            "Status of Gateway API resources and Ingresses; namespace, kind",
            statuses.statusz,
            ("pretty",),
        ),
        Page(
            "/debug/certificatez",
            "Certificates of the authority and of Secrets, with their users",
            certificates.certificatez,
        ),
        Page("/debug/configz", "All objects of Istio's kinds", configuration.configz, ("pretty",)),
        Page("/debug/resourcesz", "Supported kinds", configuration.resourcesz),
        Page("/debug/authorizationz", "All AuthorizationPolicies by namespace", configuration.authorizationz),
        Page(
            "/debug/telemetryz",
            "All Telemetry resources by namespace, or with proxyID the effective ones",
            telemetry.telemetryz,
            ("pretty",),
            optional_proxy=True,
        ),
        Page("/debug/mesh", "Effective mesh config", configuration.mesh, ("pretty",)),
        Page("/debug/inject", "Injection templates", configuration.inject, ("pretty",)),
        Page(
            "/debug/push_status",
            "Anomalies: services without endpoints, proxies without services …",
            push_status.push_status,
        ),
        Page(
            "/debug/pushcontext",
            "Authorization policies and network gateways",
            push_context.pushcontext,
            ("pretty",),
        ),
    ),
    "Registry": (
        Page("/debug/registryz", "All services", registry.registryz),
        Page("/debug/endpointShardz", "All endpoints by host and namespace", registry.endpoint_shardz),
        Page("/debug/endpointz", "Old name of endpointShardz", registry.endpoint_shardz),
        Page("/debug/instancesz", "Services of each connected proxy", registry.instancesz),
        Page("/debug/networkz", "Network gateways", registry.networkz),
        Page("/debug/clusterz", "Clusters of the registry", registry.clusterz),
        Page("/debug/mcsz", "Services exported and imported by clusters (MCS)", mcs.mcsz),
        Page("/debug/ambientz", "Workloads, services and policies for ztunnels", ambient.ambientz, ("pretty",)),
    ),
    "This process": (
        Page(
            "/debug/cachez",
            "Cached resources and their sizes",
            caches.cachez,
            ("sizes=true", "clear=true"),
        ),
        Page("/debug/krtz", "Derived values and their readers", caches.krtz, ("pretty",)),
    ),
    "This page": (Page("/debug/list", "Names of all pages as JSON", page_list, listed=False),),
}
_UNSAFE = {
    "Administration": (
        Page("/debug/force_disconnect", "Close the stream of proxyID", fleet.force_disconnect, optional_proxy=True),
    )
}


def sections(settings: DebugSettings) -> dict[str, tuple[Page, ...]]:
    """Return the enabled pages, keyed by the title of their section."""
    enabled = _SECTIONS | {"Profiles": PAGES} if settings.profiles else _SECTIONS
    return enabled | _UNSAFE if settings.unsafe_admin else enabled
