"""Short phrases about what objects do, for the kinds of which that can be said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pilot.config.kinds.istio import AUTHORIZATION_POLICY, SIDECAR, VIRTUAL_SERVICE
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import ObjectRef
from pilot.config.security.authorization_policy import AuthorizationPolicy, dry_run
from pilot.debug.changes import Change
from pilot.debug.dashboard.service_routes import action_text
from pilot.debug.finding_parts import number_of
from pilot.debug.hidden_services import effects_of_sidecar
from pilot.debug.rule_text import requests_text
from pilot.debug.slices import collect_present
from pilot.debug.sources import Sources
from pilot.lib.text import cut
from pilot.mesh.analysis.route_port import ignores_http
from pilot.mesh.tables.database import Mesh

MOST = 60
"""Maximum number of characters of a phrase."""
MAX_SIDECARS = 8
"""Maximum number of Sidecars of which it is computed what they hide."""


class Gist(NamedTuple):
    """An object and its phrase."""

    ref: ObjectRef
    text: str


async def gists_of_added(sources: Sources, changes: Iterable[Change]) -> dict[str, str]:
    """Return the phrases of the objects that some changes have added, by "KIND NAMESPACE/NAME"."""
    gists = await collect_present(_gists(sources.db, changes))
    sidecars = [gist for gist in gists if gist.ref.kind == SIDECAR.id]
    texts = {_name(gist.ref): gist.text for gist in gists if gist.text}
    for gist in sidecars[:MAX_SIDECARS]:
        if text := await _hides(sources, gist.ref):
            texts[_name(gist.ref)] = text
    return texts


def _name(ref: ObjectRef) -> str:
    return f"{ref.kind.name} {ref.namespace}/{ref.name}"


def _gists(db: Mesh, changes: Iterable[Change]) -> Iterator[Gist | None]:
    """Yield the phrase of each added object that still exists, which is "" for Sidecars, and None for other objects."""
    for change in changes:
        for one in change.objects:
            ref, key = one.ref, ObjectKey(one.namespace, one.name)
            text: str | None = None
            if one.action != "add":
                pass
            elif ref.kind == SIDECAR.id and SIDECAR.get(db, key) is not None:
                text = ""
            elif ref.kind == VIRTUAL_SERVICE.id and (route := VIRTUAL_SERVICE.get(db, key)) is not None:
                rules = route.spec.http if not ignores_http(db, key) else ()
                text = next(filter(None, map(action_text, rules)), "")
            elif ref.kind == AUTHORIZATION_POLICY.id and (policy := AUTHORIZATION_POLICY.get(db, key)) is not None:
                text = policy_text(policy)
            yield Gist(ref, cut(text, MOST)) if text is not None else None


def policy_text(row: Object[AuthorizationPolicy]) -> str:
    """Return which requests a policy denies, or "" if it allows some."""
    rules = row.spec.rules
    if dry_run(row.annotations):
        return ""
    if row.spec.action == "DENY" and rules:
        callers = " of some callers" if rules[0].from_ else ""
        return f"denies {requests_text(rules[0])}{callers}{' and more' if len(rules) > 1 else ''}"
    return "denies every request" if row.spec.action == "ALLOW" and not rules else ""


async def _hides(sources: Sources, ref: ObjectRef) -> str:
    effects = await effects_of_sidecar(sources, ObjectKey(ref.namespace, ref.name))
    proxies, hidden = sum(e.proxies for e in effects), max((e.hidden for e in effects), default=0)
    if not hidden:
        return ""
    return f"hides {number_of(hidden, 'service')} from {number_of(proxies, 'proxy', 'proxies')}"
