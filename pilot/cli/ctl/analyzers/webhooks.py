"""Checks the webhook configurations of control planes."""

from __future__ import annotations

import itertools
import urllib.parse
from collections.abc import Mapping

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObject, AnalyzedObjects, mapping
from pilot.cli.ctl.analyzers.analyzer import (
    INJECT,
    INJECTION,
    MUTATING_WEBHOOKS,
    REVISION,
    SERVICE,
    VALIDATING_WEBHOOKS,
    Analyzer,
    Reports,
)
from pilot.cli.ctl.analyzers.selectors import WebhookSelectors
from pilot.config.problem import Problems, error, info, warning
from pilot.lib.addresses import is_ip

_VALIDATORS = ("istiod-default-validator", "istio-validator")
_INJECTORS = ("istio-sidecar-injector",)
_MAX_REVISIONS = 20
"""Maximum number of revisions whose labels are tried. The number of combinations grows with its square."""
_Place = tuple[AnalyzedObject, int]


def _check_injectors(objects: AnalyzedObjects) -> Reports:
    selectors: dict[_Place, WebhookSelectors] = {}
    revisions: set[str] = set()
    for one in objects.of(MUTATING_WEBHOOKS.id):
        parsed = [WebhookSelectors(webhook) for webhook in one.items("webhooks")]
        selected = set().union(*(each.values(REVISION) for each in parsed))
        selected |= {one.labels[REVISION]} if REVISION in one.labels else set()
        if selected or any(str(webhook.get("name")).endswith("istio.io") for webhook in one.items("webhooks")):
            revisions |= selected
            selectors |= {(one, index): each for index, each in enumerate(parsed)}
    for place, others in _overlaps(selectors, sorted(revisions)[:_MAX_REVISIONS]).items():
        text = f"it overlaps with {', '.join(sorted(others))}, so Pods may be injected twice"
        yield place[0], error("webhook-overlap", f"webhooks[{place[1]}]", text)
    for one, index in selectors:
        service = mapping(mapping(one.items("webhooks")[index].get("clientConfig")).get("service"))
        namespace, name = str(service.get("namespace") or ""), str(service.get("name") or "")
        is_complete = objects.is_live or objects.by_namespace(SERVICE.id, namespace)
        if service and is_complete and objects.get(SERVICE.id, namespace, name) is None:
            text = f"Service {namespace}/{name} not found"
            yield one, error("webhook-service-not-found", f"webhooks[{index}].clientConfig.service", text)


def _overlaps(selectors: Mapping[_Place, WebhookSelectors], revisions: list[str]) -> dict[_Place, set[str]]:
    """Return the webhooks that match the same Pods as others, with the names of the others.

    All combinations of the labels for injection are tried, as in istioctl.
    """
    in_namespaces, in_pods = (
        [
            {**({label: value} if value else {}), **({REVISION: revision} if revision else {})}
            for revision in ("", *revisions)
            for value in values
        ]
        for label, values in ((INJECTION, ("", "enabled", "disabled")), (INJECT, ("", "true", "false")))
    )
    overlaps: dict[_Place, set[str]] = {}
    for namespace, pod in itertools.product(in_namespaces, in_pods):
        matching = [place for place, each in selectors.items() if each.match(namespace, pod)]
        if len(matching) > 1:
            for place in matching:
                overlaps.setdefault(place, set()).update(_name(other) for other in matching if other != place)
    return overlaps


def _name(place: _Place) -> str:
    one, index = place
    return f"{one.name}/{one.items('webhooks')[index].get('name')}"


def _check_addresses(objects: AnalyzedObjects) -> Reports:
    for kind, prefixes in ((VALIDATING_WEBHOOKS, _VALIDATORS), (MUTATING_WEBHOOKS, _INJECTORS)):
        for one in objects.of(kind.id):
            if one.name.startswith(prefixes):
                for index, webhook in enumerate(one.items("webhooks")):
                    for problem in _check_client(
                        mapping(webhook.get("clientConfig")), f"webhooks[{index}].clientConfig"
                    ):
                        yield one, problem


def _check_client(config: Mapping[str, object], path: str) -> Problems:
    url = config.get("url")
    if url is None:
        if not config.get("service"):
            yield warning("bad-webhook-address", path, "one of url and service is required")
        return
    try:
        host = urllib.parse.urlsplit(str(url)).hostname or ""
    except ValueError:
        host = ""
    if not host:
        yield warning("bad-webhook-address", f"{path}.url", f"{url} is not a URL with a hostname")
    elif is_ip(host):
        text = f"{host} is an address; use a hostname, which stays valid if the address of the control plane changes"
        yield info("webhook-address-is-ip", f"{path}.url", text)


INJECTION_WEBHOOKS = Analyzer("webhook.Analyzer", (MUTATING_WEBHOOKS, SERVICE), _check_injectors)
EXTERNAL_CONTROL_PLANES = Analyzer(
    "externalcontrolplane.ExternalControlPlaneAnalyzer", (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS), _check_addresses
)
