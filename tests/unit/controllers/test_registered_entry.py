"""Entries of registered workloads."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.networking.workload_group import WorkloadGroup
from pilot.config.object import Object
from pilot.controllers.registered_entry import build_entry, check_identity, claimed_entry, entry_name
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.xds.workload_registration import RegistrationError
from testing.mesh.objects import make
from testing.mesh.world import rows_of

Plain = dict[str, Any]


def proxy(ip: str = "10.0.0.1", identity: str = "", locality: Locality = Locality(), **metadata: Any) -> Proxy:
    labels = {"LABELS": {"version": "v1", "istio-locality": "a.b"}}
    return Proxy(
        type=NodeType.SIDECAR,
        id="vm.shop",
        ips=(ip, "10.0.0.2"),
        dns_domain="shop.svc",
        namespace="shop",
        metadata={**labels, **metadata},
        identity=identity,
        locality=locality,
    )


@pytest.mark.parametrize(
    ("ip", "metadata", "name"),
    [
        ("10.0.0.1", {}, "group-10.0.0.1"),
        ("2001:db8::1", {"NETWORK": "vm-net"}, "group-2001-db8--1-vm-net"),
        ("10.0.0.1", {"NETWORK": "n" * 244}, f"0.0.1-{'n' * 244}"[-253:]),
    ],
)
def test_entry_name(ip: str, metadata: Plain, name: str) -> None:
    full_name = entry_name("group", proxy(ip, **metadata))
    assert full_name.endswith(name)
    assert len(full_name) <= 253
    assert full_name[0] not in "-."
    assert claimed_entry(proxy(ip, AUTO_REGISTER_GROUP="group", WORKLOAD_ENTRY="other", **metadata)) == (
        "shop",
        full_name,
    )


def test_claimed_entry() -> None:
    assert claimed_entry(proxy(WORKLOAD_ENTRY="own")) == ("shop", "own")
    assert claimed_entry(proxy()) is None


def group(spec: str) -> Object[WorkloadGroup]:
    (row,) = rows_of([make("WorkloadGroup", "group", spec, "shop")]).values()
    return row


def test_build_entry() -> None:
    template_fields = "serviceAccount: web, network: other, locality: r/z"
    template = f"template: {{address: 9.9.9.9, ports: {{http: 8080}}, labels: {{app: web, version: v0}}, weight: 3, {template_fields}}}"
    workload_group = group(f"{{metadata: {{labels: {{tier: one, app: own}}, annotations: {{a: b}}}}, {template}}}")
    labels = {"app": "own", "version": "v1", "tier": "one"}
    built_entry = build_entry(
        workload_group, proxy(PROXY_CONFIG={"readinessProbe": {"httpGet": {}}}), "uid-1", "networking.istio.io/v1"
    )
    owner = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "WorkloadGroup",
        "name": "group",
        "uid": "uid-1",
        "controller": True,
    }
    annotations = {"a": "b", "istio.io/autoRegistrationGroup": "group", "proxy.istio.io/health-checks-enabled": "true"}
    assert built_entry == {
        "apiVersion": "networking.istio.io/v1",
        "kind": "WorkloadEntry",
        "metadata": {
            "name": "group-10.0.0.1",
            "namespace": "shop",
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": {
            "address": "10.0.0.1",
            "ports": {"http": 8080},
            "labels": labels,
            "weight": 3,
            "serviceAccount": "web",
            "network": "other",
            "locality": "r/z",
        },
    }
    overridden = build_entry(
        workload_group, proxy(NETWORK="vm-net", locality=Locality("reg", "zone", "")), "", "networking.istio.io/v1"
    )
    assert (overridden["spec"]["network"], overridden["spec"]["locality"]) == ("vm-net", "reg/zone")
    assert overridden["metadata"] == {
        "name": "group-10.0.0.1-vm-net",
        "namespace": "shop",
        "labels": labels,
        "annotations": {"a": "b", "istio.io/autoRegistrationGroup": "group"},
    }
    minimal = build_entry(group("{template: {}}"), proxy(), "", "v")
    assert minimal["spec"] == {"address": "10.0.0.1", "labels": {"version": "v1"}}


@pytest.mark.parametrize(
    ("metadata", "listens_hbone", "labels", "expected"),
    [
        ({"ENABLE_HBONE": "true"}, True, "{}", "http"),
        ({"ENABLE_HBONE": "true"}, True, "{networking.istio.io/tunnel: none}", "none"),
        ({"ENABLE_HBONE": "true"}, False, "{}", None),
        ({}, True, "{}", None),
    ],
)
def test_entry_of_a_proxy_that_accepts_hbone_is_labelled(
    metadata: dict[str, str], listens_hbone: bool, labels: str, expected: str | None
) -> None:
    """Release note 60788."""
    workload_group = group(f"{{template: {{labels: {labels}}}}}")
    entry = build_entry(workload_group, proxy(**metadata), "", "v", listens_hbone)
    assert entry["spec"]["labels"].get("networking.istio.io/tunnel") == expected


WEB = "spiffe://cluster.local/ns/shop/sa/web"


@pytest.mark.parametrize(
    ("identity", "account", "reason"),
    [
        (WEB, "web", None),
        (WEB, "", None),
        (WEB, "db", f"{WEB} may not register a workload as shop/db"),
        (
            WEB.replace("shop", "other"),
            "web",
            "spiffe://cluster.local/ns/other/sa/web may not register a workload as shop/web",
        ),
        (
            WEB.replace("shop", "other"),
            "",
            "spiffe://cluster.local/ns/other/sa/web may not register a workload as shop/*",
        ),
        ("", "web", "registering a workload requires a verified identity"),
    ],
)
def test_check_identity(identity: str, account: str, reason: str | None) -> None:
    if reason is None:
        check_identity(proxy(identity=identity), account)
        return
    with pytest.raises(RegistrationError) as error:
        check_identity(proxy(identity=identity), account)
    assert (str(error.value), error.value.not_found) == (reason, False)
