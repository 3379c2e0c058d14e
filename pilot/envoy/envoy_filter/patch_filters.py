"""Applies patches to the network filters of a chain, and to the HTTP filters of its HTTP connection managers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pilot.config.validation.traffic.envoy_filter import HTTP_MANAGER
from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.envoy.envoy_filter.patch_limit import Steps, batches
from pilot.envoy.envoy_filter.patch_list import change_list
from pilot.envoy.envoy_filter.patch_match import matches_chain
from pilot.envoy.envoy_filter.patch_merge import merge_packed
from pilot.lib.protobuf.constraints import unpack
from pilot.lib.protobuf.envoy_rules import TERMINAL_FILTERS
from pilot.lib.protobuf.fault import Violation
from pilot.lib.protobuf.types import name_in

_AUTHN = frozenset(("envoy.filters.http.jwt_authn", "istio_authn"))
_AUTHZ = frozenset(("envoy.filters.http.rbac", "envoy.filters.http.ext_authz"))
_STATS = frozenset(("istio.stats", "envoy.filters.http.grpc_stats"))


def _end(filters: Any) -> int:
    """Return the position at which filters can be appended. If there is a terminal filter, they precede it."""
    last = len(filters)
    return last - 1 if last and _is_terminal(filters[-1]) else last


def _is_terminal(item: Any) -> bool:
    return name_in(item.typed_config.type_url) in TERMINAL_FILTERS


def _change_filters(
    filters: Any, patches: Iterable[ParsedPatch], change: Callable[[ParsedPatch, Effects], None], effects: Effects
) -> Steps[None]:
    """Apply the patches that add, insert, replace or remove filters with `change`.

    Envoy rejects a list whose terminal filter is not the last. If the patches together cause this, those that can cause
    it are skipped. They are not tried one by one, because the list would be copied for each.
    """
    patches = [patch for patch in patches if not patch.merges]
    risky = {patch.key for patch in patches if patch.operation in ("REMOVE", "REPLACE") or _is_terminal(patch.value)}
    if not risky:
        for patch in patches:
            change(patch, effects)
            yield  # it was compared with every filter
        return
    original = _copy(filters)
    trial = Effects()
    for patch in patches:
        change(patch, trial)
        yield
    if _is_complete(filters, original):
        effects.update(trial.applied, trial.misfits)
        return
    _restore(filters, original)
    for patch in patches:
        if patch.key in risky:
            effects.record_misfit(patch, _MISPLACED)
        else:
            change(patch, effects)
            yield


_MISPLACED = Violation(
    "behind-last-filter",
    (),
    "the terminal filter would not be the last, so Envoy would reject the listener; to exchange the terminal filter, "
    "use REPLACE",
)


def _is_complete(filters: Any, original: Sequence[Any]) -> bool:
    """Return whether no filter follows a terminal one, and the last one can be terminal.

    The types of some terminal filters are not known. A filter that preceded another in the original list is not one.
    """
    if any(_is_terminal(item) for item in filters[:-1]):
        return False
    preceding = {item.typed_config.type_url for item in original[:-1]}
    return not filters or _is_terminal(filters[-1]) or filters[-1].typed_config.type_url not in preceding


def _copy(filters: Iterable[Any]) -> list[Any]:
    copies = []
    for item in filters:
        copies.append(type(item)())
        copies[-1].CopyFrom(item)
    return copies


def _restore(filters: Any, items: Iterable[Any]) -> None:
    del filters[:]
    filters.extend(items)


# -- network filters ---------------------------------------------------------------------------------------------------


def patch_network_filters(listener: Any, chain: Any, patches: Sequence[ParsedPatch], effects: Effects) -> Steps[None]:
    """Patch the filters of a chain in place: first the list, then each network filter, then the HTTP filters in it."""
    matching = [patch for patch in patches if matches_chain(patch, listener, chain)]
    network = [patch for patch in matching if patch.apply_to == "NETWORK_FILTER"]
    yield from _change_filters(
        chain.filters,
        network,
        lambda patch, trial: change_list(chain.filters, patch, _named_filter(patch), trial, _end(chain.filters)),
        effects,
    )
    for network_filter in chain.filters:
        for batch in batches([patch for patch in network if patch.merges]):
            for patch in batch:
                if _is_named(patch, network_filter.name):
                    _merge_filter(network_filter, patch, effects)
            yield
        http = [
            patch for patch in matching if patch.apply_to == "HTTP_FILTER" and _is_named(patch, network_filter.name)
        ]
        if http and network_filter.name == HTTP_MANAGER:
            yield from _patch_manager(network_filter, http, effects)


def _is_named(patch: ParsedPatch, name: str) -> bool:
    return patch.network_filter is None or patch.network_filter.name == name


def _named_filter(patch: ParsedPatch) -> Callable[[Any], bool] | None:
    filter_match = patch.network_filter
    return None if filter_match is None else lambda network_filter: network_filter.name == filter_match.name


def _merge_filter(target: Any, patch: ParsedPatch, effects: Effects) -> None:
    """Merge a patch into a filter's config, and rename the filter if the patch has a name.

    A filter whose config comes from extension config discovery is not changed.
    """
    if not target.HasField("typed_config"):
        return
    if patch.value.HasField("typed_config") and not merge_packed(
        target.typed_config, patch.value.typed_config, patch, effects
    ):
        return
    target.name = patch.value.name or target.name
    effects.record_applied(patch)


# -- HTTP filters ------------------------------------------------------------------------------------------------------


def _patch_manager(network_filter: Any, patches: Sequence[ParsedPatch], effects: Effects) -> Steps[None]:
    manager = unpack(network_filter.typed_config)
    if manager is None or not hasattr(manager, "http_filters"):
        return
    filters = manager.http_filters

    def change(patch: ParsedPatch, trial: Effects) -> None:
        sub = patch.network_filter.sub_filter if patch.network_filter is not None else None
        name = sub.name if sub is not None else None
        change_list(filters, patch, _has_name(name), trial, _insert_position(patch, filters))

    yield from _change_filters(filters, patches, change, effects)
    merging = [patch for patch in patches if patch.merges]
    for http_filter in manager.http_filters:
        for batch in batches(merging):
            for patch in batch:
                sub = patch.network_filter.sub_filter if patch.network_filter is not None else None
                if sub is None or sub.name == http_filter.name:
                    _merge_filter(http_filter, patch, effects)
            yield
    network_filter.typed_config.value = manager.SerializeToString(deterministic=True)


def _has_name(name: str | None) -> Callable[[Any], bool] | None:
    return None if name is None else lambda item: item.name == name


def _insert_position(patch: ParsedPatch, filters: Any) -> int:
    """Return the position at which a patch adds a filter.

    A filter of class STATS is placed before the statistics filters. A filter of class AUTHN or AUTHZ is placed after
    Istio's filters of that class. A filter without a class is appended.
    """
    end = _end(filters)
    if patch.operation != "ADD" or patch.filter_class == "UNSPECIFIED":
        return end
    names = [item.name for item in filters]
    if patch.filter_class == "STATS":
        return min((index for index, name in enumerate(names[:end]) if name in _STATS), default=end)
    preceding = _AUTHN if patch.filter_class == "AUTHN" else _AUTHN | _AUTHZ
    positions = [index for index, name in enumerate(names[:end]) if name in preceding]
    if positions:
        return positions[-1] + 1
    return min((index for index, name in enumerate(names[:end]) if name in _AUTHZ), default=end)
