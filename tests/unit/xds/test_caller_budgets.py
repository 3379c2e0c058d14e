"""Budgets of callers: the streams, nodes and names of a caller."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2

from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.xds.caller_budgets import CallerBudgets, CallerLimits, OverBudget, caller_key
from pilot.xds.session.delta import DeltaSession
from pilot.xds.session.name_sets import NameSets

WEB = "spiffe://cluster.local/ns/shop/sa/web"


def subscribe(name_sets: NameSets, *names: str, **versions: str) -> DeltaSession:
    session = DeltaSession(name_sets)
    request: Any = discovery_pb2.DeltaDiscoveryRequest(
        type_url=BY_SHORT_NAME["eds"], resource_names_subscribe=names, initial_resource_versions=versions
    )
    session.receive(request)
    return session


def test_caller_with_too_many_streams_is_refused_and_others_are_not() -> None:
    budgets = CallerBudgets(CallerLimits(streams=2))
    with budgets.stream("10.0.0.1"), budgets.stream("10.0.0.1"):
        with pytest.raises(OverBudget) as caught, budgets.stream("10.0.0.1"):
            pass
        assert caught.value.args == (
            "streams",
            "this caller has 2 open streams; at most 2 are allowed (PILOT_XDS_MAX_CALLER_STREAMS)",
        )
        with budgets.stream("10.0.0.2"):
            pass
    with budgets.stream("10.0.0.1"):
        pass


def test_callers_are_counted_by_verified_identity_and_address() -> None:
    keys = [caller_key(*caller) for caller in (((WEB,), "10.0.0.1"), ((WEB,), "10.0.0.2"), ((), "10.0.0.1"))]
    assert len(set(keys)) == 3


def test_equal_names_of_many_streams_count_once() -> None:
    budgets, name_sets = CallerBudgets(CallerLimits(held_bytes=35_000)), NameSets()
    fleet = [f"outbound|80||service-{number}.shop.svc.cluster.local" for number in range(200)]
    with budgets.stream("10.0.0.1") as first, budgets.stream("10.0.0.1") as second:
        sessions = [subscribe(name_sets, *fleet) for _ in range(2)]
        for stream, session in zip((first, second), sessions, strict=True):
            stream.hold_names(session)
        with budgets.stream("10.0.0.1") as hostile:
            with pytest.raises(OverBudget, match=r"bytes; at most 35000 are allowed \(PILOT_XDS_MAX_CALLER_BYTES\)"):
                hostile.hold_names(subscribe(name_sets, *(f"{name}-other" for name in fleet)))
            with pytest.raises(OverBudget):
                hostile.hold_names(subscribe(name_sets, *(f"{name}-third" for name in fleet)))
        first.hold_names(sessions[0])


def test_names_that_a_reconnecting_client_has_and_nodes_count() -> None:
    budgets = CallerBudgets(CallerLimits(held_bytes=3000))
    with budgets.stream("10.0.0.1") as stream:
        stream.hold_node(1500)
        with pytest.raises(OverBudget):
            stream.hold_names(subscribe(NameSets(), a="v" * 2000))
    with budgets.stream("10.0.0.1") as stream:
        stream.hold_node(2900)


def test_ended_streams_hold_nothing() -> None:
    budgets, name_sets = CallerBudgets(CallerLimits(streams=1, held_bytes=2000)), NameSets()
    for number in range(50):
        with budgets.stream("10.0.0.1") as stream:
            stream.hold_node(500)
            stream.hold_names(subscribe(name_sets, *(f"{number}-{index}" for index in range(10))))
            stream.hold_names(subscribe(name_sets, "a"))
