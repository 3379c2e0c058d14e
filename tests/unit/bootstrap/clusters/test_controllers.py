"""Controllers that a control plane runs by its settings, their leader election locks and notifications."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from pilot.bootstrap.clusters import controllers as writers
from pilot.bootstrap.clusters.controllers import Controllers
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import NAMESPACE, POD, SERVICE
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef
from pilot.controllers.ca_bundles import MUTATING, VALIDATING
from pilot.controllers.leader_priority import REMOTE_PREFIX
from pilot.controllers.registration_in_cluster import ClusterRegistrationOptions
from pilot.ingest.batch import Commit
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.ingest.problems import ProblemStore
from pilot.kube.informer import WatchOptions
from pilot.kube.leader_election import LeaseDurations
from pilot.kube.leader_lock import CONFIG_MAP, LEASE
from pilot.lib.backoff import Backoff
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.tables.database import Mesh
from pilot.settings.parse import load
from testing.mesh.objects import make
from testing.mesh.part_recorder import FakePart, PartRecorder
from testing.mesh.world import rows_of

PARTS = (
    "RootCertificateController",
    "TrustBundleController",
    "ControllerGroup",
    "AutoAddressController",
    "AnalysisStatusController",
    "DeliveryStatusController",
    "CaBundleController",
    "ClusterRegistration",
    "GatewayControllers",
    "LeaderPriority",
    "ServiceExportController",
    "NodeTaintController",
    "RemoteControllers",
    "LeaderElection",
    "Lock",
)
DEFAULT_PARTS = [
    "RootCertificateController",
    "AutoAddressController",
    "CaBundleController",
    "ClusterRegistration",
    "GatewayControllers",
    "LeaderPriority",
]
ENTRY = GroupKind("networking.istio.io", "ServiceEntry")
DURATIONS = LeaseDurations()


class Authority:
    """Authority with fixed roots and revocations."""

    def __init__(self) -> None:
        self.on_change: list[Any] = []
        self.roots, self.crl = b"roots", b"revoked"

    def roots_pem(self) -> bytes:
        return self.roots


async def count_nothing(ref: ObjectRef) -> None:
    """Return None."""


class Harness:
    """The controllers of a control plane, with stand-ins for the parts."""

    def __init__(
        self,
        journal: PartRecorder,
        environ: dict[str, str],
        flags: tuple[str, ...] = (),
        authority: bool = True,
        mesh: str = "",
    ) -> None:
        self.journal, self.client, self.metrics, self.watch_options = (
            journal,
            object(),
            object(),
            WatchOptions(Backoff(1.0, 2.0)),
        )
        self.caller_client = object()
        self.source = SimpleNamespace(path_of=lambda *ref: "/".join(map(str, ref)), watches=["a kind"])
        self.settings, self.webhooks = load(list(flags), {"POD_NAME": "istiod-1", **environ}).settings, object()
        self.problems, self.db, self.authority = (
            ProblemStore(),
            Mesh(self.settings.mesh),
            Authority() if authority else None,
        )
        config, problems = decode_mesh_config([yaml.safe_load(mesh)] if mesh else [])
        assert config is not None, problems
        self.db.commit([(self.db.mesh, "mesh", config)])
        self.kubernetes: Any = SimpleNamespace(
            client=self.client,
            caller_client=self.caller_client,
            source=self.source,
            watch_options=self.watch_options,
            metrics=self.metrics,
            problems=self.problems,
        )
        self.controllers = Controllers(
            self.kubernetes, self.settings, self.db, self.authority, self.webhooks, count_nothing, DURATIONS
        )  # type: ignore[arg-type]

    def part(self, name: str) -> FakePart:
        return self.journal.part(name)

    async def start(self) -> None:
        """Start, and let the new tasks run."""
        await self.controllers.start()
        for _ in range(5):
            await asyncio.sleep(0)

    def calls_for(self, *tables: str) -> list[tuple[Any, ...]]:
        """Return the calls caused by a commit that changed these tables."""
        self.journal.pop_calls()
        self.controllers.on_commit(Commit([], [(table, "key", None) for table in tables], 1, 0.0, 0.0, Counter(), 0.0))
        return [call[:1] for call in self.journal.pop_calls()]


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> PartRecorder:
    recorder = PartRecorder()
    recorder.replace_classes(monkeypatch, writers, *PARTS)
    return recorder


@pytest.mark.parametrize(
    ("environ", "flags", "authority", "parts"),
    [
        ({}, (), True, DEFAULT_PARTS),
        ({}, (), False, ["AutoAddressController", "ClusterRegistration", "GatewayControllers", "LeaderPriority"]),
        ({}, ("--configDir=/etc",), True, ["RootCertificateController", "CaBundleController", "LeaderPriority"]),
        (
            {"PILOT_ENABLE_IP_AUTOALLOCATE": "false"},
            (),
            False,
            ["ClusterRegistration", "GatewayControllers", "LeaderPriority"],
        ),
        (
            {"PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION": "false"},
            (),
            False,
            ["AutoAddressController", "GatewayControllers", "LeaderPriority"],
        ),
        (
            {"PILOT_ENABLE_ANALYSIS": "true"},
            (),
            False,
            [
                "AutoAddressController",
                "AnalysisStatusController",
                "ClusterRegistration",
                "GatewayControllers",
                "LeaderPriority",
            ],
        ),
        ({"PILOT_ENABLE_ANALYSIS": "true"}, ("--configDir=/etc",), False, ["LeaderPriority"]),
        (
            {"PILOT_ENABLE_STATUS": "true"},
            (),
            False,
            [
                "AutoAddressController",
                "DeliveryStatusController",
                "ClusterRegistration",
                "GatewayControllers",
                "LeaderPriority",
            ],
        ),
        (
            {"ENABLE_CLUSTER_TRUST_BUNDLE_API": "true"},
            (),
            True,
            ["RootCertificateController", "TrustBundleController", "ControllerGroup", *DEFAULT_PARTS[1:]],
        ),
        ({"ENABLE_MCS_AUTO_EXPORT": "true"}, (), True, [*DEFAULT_PARTS, "ServiceExportController"]),
        ({"PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS": "true"}, (), True, [*DEFAULT_PARTS, "NodeTaintController"]),
        ({"EXTERNAL_ISTIOD": "true"}, (), True, [*DEFAULT_PARTS, "RemoteControllers"]),
        (
            {"EXTERNAL_ISTIOD": "true"},
            (),
            False,
            ["AutoAddressController", "ClusterRegistration", "GatewayControllers", "LeaderPriority"],
        ),
    ],
)
def test_settings_select_controllers(
    journal: PartRecorder, environ: dict[str, str], flags: tuple[str, ...], authority: bool, parts: list[str]
) -> None:
    Harness(journal, environ, flags, authority)
    assert journal.names == parts


ALL = {
    "PILOT_ENABLE_ANALYSIS": "true",
    "ENABLE_MCS_AUTO_EXPORT": "true",
    "PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS": "true",
    "EXTERNAL_ISTIOD": "true",
}


def test_parts_receive_their_arguments(journal: PartRecorder) -> None:
    harness = Harness(journal, ALL)
    rng = harness.part("AutoAddressController").args[-1]
    assert isinstance(rng, random.Random)
    client, watch_options, backoff = harness.client, harness.watch_options, harness.watch_options.backoff
    path = harness.part("AutoAddressController").args[2]
    assert harness.part("AutoAddressController").args == (client, harness.db, path, backoff, rng)
    assert path(ObjectKey("shop", "one")) == f"{ENTRY}/shop/one"
    args = harness.part("AnalysisStatusController").args
    assert args == (client, harness.problems, args[2], args[3], 10.0, backoff, rng)
    assert args[2](ObjectRef(ENTRY, "shop", "one")) == f"{ENTRY}/shop/one"
    assert args[3]() == ("a kind",)
    args = harness.part("CaBundleController").args
    assert args == (client, "", "istio-system", args[3], [MUTATING, VALIDATING], watch_options, rng, harness.metrics)
    assert args[3]() == "roots"
    terms = ClusterRegistrationOptions("istiod-1", 10.0, identity_check=True)
    assert harness.part("ClusterRegistration").args == (
        harness.caller_client,
        harness.db,
        harness.source.path_of,
        terms,
        backoff,
        rng,
        harness.metrics,
    )
    entries: Any = harness.controllers.registration
    assert entries is harness.part("ClusterRegistration")
    assert harness.part("GatewayControllers").args == (
        harness.kubernetes,
        harness.settings,
        harness.db,
        harness.webhooks,
        rng,
    )
    assert harness.part("LeaderPriority").args == (client, "default", watch_options, rng)
    assert harness.part("NodeTaintController").args == (
        client,
        "istio-system",
        "cni.istio.io/not-ready",
        watch_options,
        rng,
    )
    args = harness.part("ServiceExportController").args
    assert args == (client, "multicluster.x-k8s.io/v1alpha1", args[2], watch_options, rng)
    assert harness.part("RemoteControllers").args[:2] == ("Kubernetes", "istio-system")


def test_settings_reach_parts(journal: PartRecorder) -> None:
    environ = {
        **ALL,
        "REVISION": "blue",
        "POD_NAMESPACE": "mesh",
        "CLUSTER_ID": "east",
        "PILOT_ANALYSIS_INTERVAL": "1s",
        "PILOT_WORKLOAD_ENTRY_GRACE_PERIOD": "1m",
        "ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY": "false",
        "PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME": "a/taint",
    }
    harness = Harness(journal, environ, ("--cniNamespace=kube-system",))
    assert harness.part("AnalysisStatusController").args[4] == 1.0
    assert harness.part("CaBundleController").args[1:3] == ("blue", "mesh")
    assert harness.part("ClusterRegistration").args[3] == ClusterRegistrationOptions(
        "istiod-1", 60.0, identity_check=False
    )
    assert harness.part("LeaderPriority").args[1] == "blue"
    assert harness.part("NodeTaintController").args[1:3] == ("kube-system", "a/taint")
    assert harness.part("RemoteControllers").args[:2] == ("east", "mesh")


def test_too_short_analysis_interval_becomes_the_default(journal: PartRecorder) -> None:
    assert (
        Harness(journal, {**ALL, "PILOT_ANALYSIS_INTERVAL": "999ms"}).part("AnalysisStatusController").args[4] == 10.0
    )


def test_process_outside_a_pod_gets_a_unique_name(journal: PartRecorder) -> None:
    for _ in range(2):
        Harness(journal, {"POD_NAME": ""})
    names = [part.args[3].replica for part in journal.parts if part.name == "ClusterRegistration"]
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"pyistiod-[0-9a-f]{12}", name) for name in names)


@pytest.mark.parametrize(
    ("injection", "validation", "kinds"),
    [("a", "b", [MUTATING, VALIDATING]), ("a", "", [MUTATING]), ("", "b", [VALIDATING]), ("", "", None)],
)
def test_ca_bundles_cover_the_configured_webhooks(
    journal: PartRecorder, injection: str, validation: str, kinds: list[Any] | None
) -> None:
    harness = Harness(
        journal,
        {
            "INJECTION_WEBHOOK_CONFIG_NAME": injection,
            "VALIDATION_WEBHOOK_CONFIG_NAME": validation,
            "EXTERNAL_ISTIOD": "true",
        },
    )
    assert [part.args[4] for part in journal.parts if part.name == "CaBundleController"] == ([kinds] if kinds else [])
    client: Any = object()
    roots, bundles = harness.part("RemoteControllers").args[2](client)
    assert roots.args[0] is client
    assert (bundles is not None) == bool(injection)


def test_root_config_maps_follow_the_authority(journal: PartRecorder) -> None:
    harness = Harness(journal, {})
    client, config_maps, selected, watch_options, rng = harness.part("RootCertificateController").args
    assert (client, watch_options) == (harness.client, harness.watch_options)
    assert isinstance(rng, random.Random)
    assert harness.authority is not None
    assert config_maps() == {
        "istio-ca-root-cert": {"root-cert.pem": "roots"},
        "istio-ca-crl": {"ca-crl.pem": "revoked"},
    }
    assert selected("shop", {})
    harness.authority.roots = b""
    assert config_maps() == {}, "there are no roots yet"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PILOT_ENABLE_CA_CRL": "false", "PILOT_CA_CERT_CONFIGMAP": "ours"}, {"ours": {"root-cert.pem": "roots"}}),
        (
            {"PILOT_CRL_CONFIGMAP": "gone", "ENABLE_CLUSTER_TRUST_BUNDLE_API": "true"},
            {"gone": {"ca-crl.pem": "revoked"}},
        ),
    ],
)
def test_settings_name_the_root_config_maps(
    journal: PartRecorder, environ: dict[str, str], expected: dict[str, Any]
) -> None:
    harness = Harness(journal, environ)
    assert harness.part("RootCertificateController").args[1]() == expected
    if "ENABLE_CLUSTER_TRUST_BUNDLE_API" in environ:
        client, trust_bundle, watch_options, rng = harness.part("TrustBundleController").args
        assert (client, trust_bundle(), watch_options, rng) == (
            harness.client,
            "roots",
            harness.watch_options,
            harness.part("RootCertificateController").args[4],
        )
        assert harness.part("ControllerGroup").args == (
            harness.part("RootCertificateController"),
            harness.part("TrustBundleController"),
        )


SELECTORS = "discoverySelectors: [{matchLabels: {mesh: 'yes'}}, {matchLabels: {kubernetes.io/metadata.name: bank}}]"


@pytest.mark.parametrize(
    ("environ", "mesh", "namespace", "labels", "selected"),
    [
        ({}, SELECTORS, "shop", {}, False),
        ({}, SELECTORS, "shop", {"mesh": "yes"}, True),
        ({}, SELECTORS, "bank", {}, True),
        ({"ISTIO_WATCH_NAMESPACE": "shop"}, "", "shop", {}, True),
        ({"ISTIO_WATCH_NAMESPACE": "shop"}, "", "bank", {}, False),
        ({"ISTIO_WATCH_NAMESPACE": "shop"}, SELECTORS, "shop", {}, False),
    ],
)
def test_excluded_namespaces_get_no_roots(
    journal: PartRecorder, environ: dict[str, str], mesh: str, namespace: str, labels: dict[str, str], selected: bool
) -> None:
    assert Harness(journal, environ, mesh=mesh).part("RootCertificateController").args[2](namespace, labels) is selected


def test_cluster_local_services_are_not_exported(journal: PartRecorder) -> None:
    mesh = "serviceSettings: [{settings: {clusterLocal: true}, hosts: [own.shop.svc.example.org]}]"
    harness = Harness(journal, ALL, ("--domain=example.org",), mesh=mesh)
    is_cluster_local = harness.part("ServiceExportController").args[2]
    assert [
        is_cluster_local("shop", "own"),
        is_cluster_local("own", "shop"),
        is_cluster_local("shop", "web"),
        is_cluster_local("kube-system", "dns"),
    ] == [
        True,
        False,
        False,
        True,
    ]
    config, _ = decode_mesh_config([])
    harness.db.commit([(harness.db.mesh, "mesh", config)])
    assert not is_cluster_local("shop", "own"), "the new mesh config has no such setting"


# -- leader election ---------------------------------------------------------------------------------------------------


async def test_each_controller_has_its_own_lock(journal: PartRecorder) -> None:
    harness = Harness(journal, {**ALL, "POD_NAMESPACE": "mesh"})
    harness.part("GatewayControllers").elections = lambda: [
        ("istio-leader", None),
        ("istio-gateway-status-leader-default", None),
    ]
    await harness.start()
    locks = [part.args for part in journal.parts if part.name == "Lock"]
    names = (
        "istio-namespace-controller-election",
        "istio-ip-autoallocate",
        "istio-analyze-leader",
        "istio-serviceexport-controller-election",
        "istio-node-untaint",
        "istio-leader",
    )
    assert locks == [
        *((harness.client, CONFIG_MAP, "mesh", name) for name in names),
        (harness.client, LEASE, "mesh", "istio-gateway-status-leader-default"),
    ]
    elections = [part for part in journal.parts if part.name == "LeaderElection"]
    precedence = harness.part("LeaderPriority")
    for election, lock in zip(elections, [part for part in journal.parts if part.name == "Lock"], strict=True):
        ranks = () if lock.args[1] is LEASE else (precedence.key, precedence.outranks)
        assert election.args[:3] == (lock, "istiod-1", DURATIONS)
        assert len(election.args) == 3 + len(ranks)
    assert journal.lines.count("LeaderElection.run") == len(locks)
    await harness.controllers.stop()


async def test_every_replica_writes_without_elections(journal: PartRecorder) -> None:
    harness = Harness(journal, {**ALL, "ENABLE_LEADER_ELECTION": "false"})
    await harness.start()
    starts = [
        "ClusterRegistration.start",
        "GatewayControllers.start",
        "CaBundleController.run",
        "RootCertificateController.run",
        "AutoAddressController.run",
        "AnalysisStatusController.run",
        "ServiceExportController.run",
        "NodeTaintController.run",
    ]
    assert journal.lines == starts
    await harness.controllers.stop()
    assert journal.lines[len(starts) :] == [
        "GatewayControllers.stop",
        "LeaderPriority.stop",
        "ClusterRegistration.stop",
    ]
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == [], "no task is left"


async def test_leader_priority_starts_before_elections(journal: PartRecorder) -> None:
    harness = Harness(journal, {}, authority=False)
    await harness.start()
    assert journal.lines == [
        "ClusterRegistration.start",
        "GatewayControllers.start",
        "LeaderPriority.start",
        "LeaderElection.run",
    ]
    await harness.controllers.stop()


async def test_no_controllers_run_if_none_is_enabled(journal: PartRecorder) -> None:
    harness = Harness(journal, {"ENABLE_LEADER_ELECTION": "false"}, ("--configDir=/etc",), authority=False)
    await harness.start()
    harness.controllers.on_stream_commit([])
    assert harness.calls_for("MeshConfig", SERVICE_ENTRY.table_name, NAMESPACE.table_name) == []
    await harness.controllers.stop()
    assert journal.lines == ["LeaderPriority.stop"]


async def test_changed_roots_are_written_at_once(journal: PartRecorder) -> None:
    harness = Harness(journal, ALL)
    assert harness.authority is not None
    assert harness.authority.on_change == [], "no listener before the start"
    await harness.start()
    journal.pop_calls()
    for on_change in harness.authority.on_change:
        on_change()
    assert journal.pop_calls() == [
        ("RemoteControllers.resync",),
        ("RootCertificateController.resync",),
        ("CaBundleController.resync",),
    ]
    await harness.controllers.stop()


def test_commits_notify_affected_parts(journal: PartRecorder) -> None:
    harness = Harness(journal, ALL)
    always = [("GatewayControllers.on_commit",), ("AnalysisStatusController.on_edit",)]
    assert harness.calls_for("MeshConfig") == [
        ("RootCertificateController.resync",),
        ("RemoteControllers.resync",),
        *always,
    ]
    assert harness.calls_for(SERVICE_ENTRY.table_name) == [("AutoAddressController.resync",), *always]
    assert harness.calls_for(SERVICE.table_name, POD.table_name) == always
    nodes: Any = ["some nodes"]
    harness.controllers.on_stream_commit(nodes)
    assert journal.pop_calls() == [("GatewayControllers.on_stream_commit", nodes)]


def test_analysis_receives_committed_objects(journal: PartRecorder) -> None:
    harness = Harness(journal, ALL)
    rows = rows_of(
        [
            make(
                "ServiceEntry",
                "one",
                "{hosts: [a.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}",
            )
        ]
    )
    [row] = rows.values()
    edits: Any = [
        (SERVICE_ENTRY.table_name, "a", row),
        (SERVICE_ENTRY.table_name, "b", None),
        ("MeshConfig", "mesh", object()),
    ]
    commit = Commit([], edits, 1, 0.0, 0.0, Counter(), 0.0)
    harness.controllers.on_commit(commit)
    calls = {call[0]: call[1] for call in journal.pop_calls() if len(call) > 1}
    assert list(calls["AnalysisStatusController.on_edit"]) == [row.ref]
    assert calls["GatewayControllers.on_commit"] is commit


# -- remote clusters ---------------------------------------------------------------------------------------------------


async def test_remote_cluster_is_written_by_its_leader(journal: PartRecorder) -> None:
    harness = Harness(journal, {**ALL, "REVISION": "blue", "POD_NAMESPACE": "mesh"})
    remote = harness.part("RemoteControllers")
    _, _, make_controllers, lead, started, attempts = remote.args
    assert not started.is_set()
    assert attempts() is not attempts()
    remote_client: Any = object()
    roots, bundles = make_controllers(remote_client)
    assert (roots.name, roots.args[0]) == ("RootCertificateController", remote_client)
    rng = roots.args[4]
    assert bundles.args == (
        remote_client,
        "blue",
        "mesh",
        bundles.args[3],
        [MUTATING],
        harness.watch_options,
        rng,
        harness.metrics,
    )
    assert bundles.args[3]() == "roots"
    task = asyncio.create_task(lead(remote_client, roots))
    for _ in range(3):
        await asyncio.sleep(0)
    assert journal.parts[-1].name == "LeaderElection"
    lock, precedence = journal.parts[-2], journal.parts[-3]
    assert lock.args == (remote_client, CONFIG_MAP, "mesh", "istio-namespace-controller-election")
    assert precedence.args == (remote_client, f"{REMOTE_PREFIX}blue", harness.watch_options, rng)
    assert journal.parts[-1].args[:3] == (lock, "istiod-1", DURATIONS)
    assert len(journal.parts[-1].args) == 5
    assert journal.lines == ["LeaderPriority.start", "LeaderElection.run"]
    await cancel_tasks(task)
    assert journal.lines[2:] == ["LeaderPriority.stop"]
    await harness.controllers.start()
    assert started.is_set()
    await harness.controllers.stop()


async def test_every_replica_writes_to_remote_clusters_without_elections(journal: PartRecorder) -> None:
    harness = Harness(journal, {**ALL, "ENABLE_LEADER_ELECTION": "false"})
    _, _, make_controllers, lead, _, _ = harness.part("RemoteControllers").args
    remote_client: Any = object()
    roots, _ = make_controllers(remote_client)
    task = asyncio.create_task(lead(remote_client, roots))
    await asyncio.sleep(0)
    assert journal.lines == ["RootCertificateController.run"]
    await cancel_tasks(task)


async def test_only_an_external_control_plane_writes_to_remote_clusters(journal: PartRecorder) -> None:
    client: Any = object()
    await Harness(journal, {}).controllers.run_remote("west", client)
    assert journal.lines == []
    harness = Harness(journal, {"EXTERNAL_ISTIOD": "true"})
    task = asyncio.create_task(harness.controllers.run_remote("west", client))
    await asyncio.sleep(0)
    assert journal.lines == ["RemoteControllers.run"]
    await cancel_tasks(task)
