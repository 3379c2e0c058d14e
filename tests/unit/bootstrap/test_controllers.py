"""What a control plane writes into clusters by its settings: which parts there are, which lock each waits for, and what they are told."""

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
from testing.mesh.part_recorder import Journal, StandIn
from testing.mesh.world import rows_of

PARTS = (
    "RootCertificateController",
    "TrustBundleController",
    "ControllerGroup",
    "AutoAddressController",
    "AnalysisStatusController",
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
USUAL = [
    "RootCertificateController",
    "AutoAddressController",
    "CaBundleController",
    "ClusterRegistration",
    "GatewayControllers",
    "LeaderPriority",
]
ENTRY = GroupKind("networking.istio.io", "ServiceEntry")
TERMS = LeaseDurations()


class Authority:
    """What proxies trust the control plane by."""

    def __init__(self) -> None:
        self.on_change: list[Any] = []
        self.roots, self.crl = b"roots", b"revoked"

    def roots_pem(self) -> bytes:
        return self.roots


class Written:
    """The writers of a control plane whose parts are stand-ins."""

    def __init__(
        self,
        journal: Journal,
        environ: dict[str, str],
        flags: tuple[str, ...] = (),
        authority: bool = True,
        mesh: str = "",
    ) -> None:
        self.journal, self.client, self.counts, self.pace = journal, object(), object(), WatchOptions(Backoff(1.0, 2.0))
        self.source = SimpleNamespace(path_of=lambda *ref: "/".join(map(str, ref)), followed=["a kind"])
        self.settings, self.webhooks = load(list(flags), {"POD_NAME": "istiod-1", **environ}).settings, object()
        self.problems, self.db, self.authority = (
            ProblemStore(),
            Mesh(self.settings.mesh),
            Authority() if authority else None,
        )
        config, found = decode_mesh_config([yaml.safe_load(mesh)] if mesh else [])
        assert config is not None, found
        self.db.commit([(self.db.mesh, "mesh", config)])
        self.kubernetes: Any = SimpleNamespace(
            client=self.client,
            source=self.source,
            watch_options=self.pace,
            metrics=self.counts,
            problems=self.problems,
        )
        self.writers = Controllers(self.kubernetes, self.settings, self.db, self.authority, self.webhooks, TERMS)  # type: ignore[arg-type]

    def one(self, name: str) -> StandIn:
        return self.journal.one(name)

    async def begin(self) -> None:
        """Starts, and lets everything that begins do so."""
        await self.writers.start()
        for _ in range(5):
            await asyncio.sleep(0)

    def committed(self, *tables: str) -> list[tuple[Any, ...]]:
        """Returns what is called when tables have changed."""
        self.journal.take_calls()
        self.writers.on_commit(Commit([], [(table, "key", None) for table in tables], 1, 0.0, 0.0, Counter(), 0.0))
        return [call[:1] for call in self.journal.take_calls()]


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    made = Journal()
    made.take_over(monkeypatch, writers, *PARTS)
    return made


@pytest.mark.parametrize(
    ("environ", "flags", "authority", "parts"),
    [
        ({}, (), True, USUAL),
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
            {"ENABLE_CLUSTER_TRUST_BUNDLE_API": "true"},
            (),
            True,
            ["RootCertificateController", "TrustBundleController", "ControllerGroup", *USUAL[1:]],
        ),
        ({"ENABLE_MCS_AUTO_EXPORT": "true"}, (), True, [*USUAL, "ServiceExportController"]),
        ({"PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS": "true"}, (), True, [*USUAL, "NodeTaintController"]),
        ({"EXTERNAL_ISTIOD": "true"}, (), True, [*USUAL, "RemoteControllers"]),
        (
            {"EXTERNAL_ISTIOD": "true"},
            (),
            False,
            ["AutoAddressController", "ClusterRegistration", "GatewayControllers", "LeaderPriority"],
        ),
    ],
)
def test_settings_say_what_is_written(
    journal: Journal, environ: dict[str, str], flags: tuple[str, ...], authority: bool, parts: list[str]
) -> None:
    Written(journal, environ, flags, authority)
    assert journal.names == parts


ALL = {
    "PILOT_ENABLE_ANALYSIS": "true",
    "ENABLE_MCS_AUTO_EXPORT": "true",
    "PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS": "true",
    "EXTERNAL_ISTIOD": "true",
}


def test_every_part_is_given_what_it_needs(journal: Journal) -> None:
    it = Written(journal, ALL)
    choose = it.one("AutoAddressController").given[-1]
    assert isinstance(choose, random.Random)
    client, pace, backoff = it.client, it.pace, it.pace.backoff
    path = it.one("AutoAddressController").given[2]
    assert it.one("AutoAddressController").given == (client, it.db, path, backoff, choose)
    assert path(ObjectKey("shop", "one")) == f"{ENTRY}/shop/one"
    given = it.one("AnalysisStatusController").given
    assert given == (client, it.problems, given[2], given[3], 10.0, backoff, choose)
    assert given[2](ObjectRef(ENTRY, "shop", "one")) == f"{ENTRY}/shop/one"
    assert given[3]() == ("a kind",)
    given = it.one("CaBundleController").given
    assert given == (client, "", "istio-system", given[3], [MUTATING, VALIDATING], pace, choose, it.counts)
    assert given[3]() == "roots"
    terms = ClusterRegistrationOptions("istiod-1", 10.0, identity_check=True)
    assert it.one("ClusterRegistration").given == (client, it.db, it.source.path_of, terms, backoff, choose, it.counts)
    entries: Any = it.writers.registration
    assert entries is it.one("ClusterRegistration")
    assert it.one("GatewayControllers").given == (it.kubernetes, it.settings, it.db, it.webhooks, choose)
    assert it.one("LeaderPriority").given == (client, "default", pace, choose)
    assert it.one("NodeTaintController").given == (client, "istio-system", "cni.istio.io/not-ready", pace, choose)
    given = it.one("ServiceExportController").given
    assert given == (client, given[1], pace, choose)
    assert it.one("RemoteControllers").given[:2] == ("Kubernetes", "istio-system")


def test_settings_of_parts_reach_them(journal: Journal) -> None:
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
    it = Written(journal, environ, ("--cniNamespace=kube-system",))
    assert it.one("AnalysisStatusController").given[4] == 1.0
    assert it.one("CaBundleController").given[1:3] == ("blue", "mesh")
    assert it.one("ClusterRegistration").given[3] == ClusterRegistrationOptions("istiod-1", 60.0, identity_check=False)
    assert it.one("LeaderPriority").given[1] == "blue"
    assert it.one("NodeTaintController").given[1:3] == ("kube-system", "a/taint")
    assert it.one("RemoteControllers").given[:2] == ("east", "mesh")


def test_an_interval_of_analysis_that_is_too_short_is_the_usual_one(journal: Journal) -> None:
    assert (
        Written(journal, {**ALL, "PILOT_ANALYSIS_INTERVAL": "999ms"}).one("AnalysisStatusController").given[4] == 10.0
    )


def test_a_process_that_is_no_pod_has_a_name_of_its_own(journal: Journal) -> None:
    for _ in range(2):
        Written(journal, {"POD_NAME": ""})
    names = [one.given[3].replica for one in journal.made if one.name == "ClusterRegistration"]
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"pyistiod-[0-9a-f]{12}", name) for name in names)


@pytest.mark.parametrize(
    ("injection", "validation", "kinds"),
    [("a", "b", [MUTATING, VALIDATING]), ("a", "", [MUTATING]), ("", "b", [VALIDATING]), ("", "", None)],
)
def test_roots_are_written_into_the_kinds_of_webhooks_that_are_named(
    journal: Journal, injection: str, validation: str, kinds: list[Any] | None
) -> None:
    it = Written(
        journal,
        {
            "INJECTION_WEBHOOK_CONFIG_NAME": injection,
            "VALIDATION_WEBHOOK_CONFIG_NAME": validation,
            "EXTERNAL_ISTIOD": "true",
        },
    )
    assert [one.given[4] for one in journal.made if one.name == "CaBundleController"] == ([kinds] if kinds else [])
    client: Any = object()
    roots, bundles = it.one("RemoteControllers").given[2](client)
    assert roots.given[0] is client
    assert (bundles is not None) == bool(injection)


def test_roots_come_from_whoever_proxies_trust(journal: Journal) -> None:
    it = Written(journal, {})
    client, wanted, selected, pace, choose = it.one("RootCertificateController").given
    assert (client, pace) == (it.client, it.pace)
    assert isinstance(choose, random.Random)
    assert it.authority is not None
    assert wanted() == {"istio-ca-root-cert": {"root-cert.pem": "roots"}, "istio-ca-crl": {"ca-crl.pem": "revoked"}}
    assert selected("shop", {})
    it.authority.roots = b""
    assert wanted() == {}, "there are none yet"


@pytest.mark.parametrize(
    ("environ", "maps"),
    [
        ({"PILOT_ENABLE_CA_CRL": "false", "PILOT_CA_CERT_CONFIGMAP": "ours"}, {"ours": {"root-cert.pem": "roots"}}),
        (
            {"PILOT_CRL_CONFIGMAP": "gone", "ENABLE_CLUSTER_TRUST_BUNDLE_API": "true"},
            {"gone": {"ca-crl.pem": "revoked"}},
        ),
    ],
)
def test_settings_name_the_maps_that_have_roots(
    journal: Journal, environ: dict[str, str], maps: dict[str, Any]
) -> None:
    it = Written(journal, environ)
    assert it.one("RootCertificateController").given[1]() == maps
    if "ENABLE_CLUSTER_TRUST_BUNDLE_API" in environ:
        client, wanted, pace, choose = it.one("TrustBundleController").given
        assert (client, wanted(), pace, choose) == (
            it.client,
            "roots",
            it.pace,
            it.one("RootCertificateController").given[4],
        )
        assert it.one("ControllerGroup").given == (it.one("RootCertificateController"), it.one("TrustBundleController"))


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
def test_namespaces_that_are_left_out_have_no_roots(
    journal: Journal, environ: dict[str, str], mesh: str, namespace: str, labels: dict[str, str], selected: bool
) -> None:
    assert Written(journal, environ, mesh=mesh).one("RootCertificateController").given[2](namespace, labels) is selected


def test_services_that_stay_in_their_cluster_are_not_exported(journal: Journal) -> None:
    mesh = "serviceSettings: [{settings: {clusterLocal: true}, hosts: [own.shop.svc.example.org]}]"
    it = Written(journal, ALL, ("--domain=example.org",), mesh=mesh)
    stays = it.one("ServiceExportController").given[1]
    assert [stays("shop", "own"), stays("own", "shop"), stays("shop", "web"), stays("kube-system", "dns")] == [
        True,
        False,
        False,
        True,
    ]
    config, _ = decode_mesh_config([])
    it.db.commit([(it.db.mesh, "mesh", config)])
    assert not stays("shop", "own"), "the mesh config says so no more"


# -- who writes, and when ----------------------------------------------------------------------------------------------


async def test_each_matter_waits_for_a_lock_of_its_own(journal: Journal) -> None:
    it = Written(journal, {**ALL, "POD_NAMESPACE": "mesh"})
    it.one("GatewayControllers").elections = lambda: [
        ("istio-leader", None),
        ("istio-gateway-status-leader-default", None),
    ]
    await it.begin()
    locks = [one.given for one in journal.made if one.name == "Lock"]
    names = (
        "istio-namespace-controller-election",
        "istio-ip-autoallocate",
        "istio-analyze-leader",
        "istio-serviceexport-controller-election",
        "istio-node-untaint",
        "istio-leader",
    )
    assert locks == [
        *((it.client, CONFIG_MAP, "mesh", name) for name in names),
        (it.client, LEASE, "mesh", "istio-gateway-status-leader-default"),
    ]
    elections = [one for one in journal.made if one.name == "LeaderElection"]
    precedence = it.one("LeaderPriority")
    for election, lock in zip(elections, [one for one in journal.made if one.name == "Lock"], strict=True):
        ranks = () if lock.given[1] is LEASE else (precedence.key, precedence.outranks)
        assert election.given[:3] == (lock, "istiod-1", TERMS)
        assert len(election.given) == 3 + len(ranks)
    assert journal.lines.count("LeaderElection.run") == len(locks)
    await it.writers.stop()


async def test_without_elections_every_replica_writes(journal: Journal) -> None:
    it = Written(journal, {**ALL, "ENABLE_LEADER_ELECTION": "false"})
    await it.begin()
    begun = [
        "ClusterRegistration.start",
        "GatewayControllers.start",
        "CaBundleController.run",
        "RootCertificateController.run",
        "AutoAddressController.run",
        "AnalysisStatusController.run",
        "ServiceExportController.run",
        "NodeTaintController.run",
    ]
    assert journal.lines == begun
    await it.writers.stop()
    assert journal.lines[len(begun) :] == ["GatewayControllers.stop", "LeaderPriority.stop", "ClusterRegistration.stop"]
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == [], "nothing is left running"


async def test_with_elections_the_default_revision_is_followed_first(journal: Journal) -> None:
    it = Written(journal, {}, authority=False)
    await it.begin()
    assert journal.lines == [
        "ClusterRegistration.start",
        "GatewayControllers.start",
        "LeaderPriority.start",
        "LeaderElection.run",
    ]
    await it.writers.stop()


async def test_where_nothing_is_written_nothing_runs(journal: Journal) -> None:
    it = Written(journal, {"ENABLE_LEADER_ELECTION": "false"}, ("--configDir=/etc",), authority=False)
    await it.begin()
    it.writers.on_stream_commit([])
    assert it.committed("MeshConfig", SERVICE_ENTRY.table_name, NAMESPACE.table_name) == []
    await it.writers.stop()
    assert journal.lines == ["LeaderPriority.stop"]


async def test_other_roots_are_written_at_once(journal: Journal) -> None:
    it = Written(journal, ALL)
    assert it.authority is not None
    assert it.authority.on_change == [], "nothing is written before the start"
    await it.begin()
    journal.take_calls()
    for changed in it.authority.on_change:
        changed()
    assert journal.take_calls() == [
        ("RemoteControllers.resync",),
        ("RootCertificateController.resync",),
        ("CaBundleController.resync",),
    ]
    await it.writers.stop()


def test_parts_are_told_of_what_is_committed(journal: Journal) -> None:
    it = Written(journal, ALL)
    always = [("GatewayControllers.on_commit",), ("AnalysisStatusController.on_edit",)]
    assert it.committed("MeshConfig") == [("RootCertificateController.resync",), ("RemoteControllers.resync",), *always]
    assert it.committed(SERVICE_ENTRY.table_name) == [("AutoAddressController.resync",), *always]
    assert it.committed(SERVICE.table_name, POD.table_name) == always
    nodes: Any = ["some nodes"]
    it.writers.on_stream_commit(nodes)
    assert journal.take_calls() == [("GatewayControllers.on_stream_commit", nodes)]


def test_of_what_is_committed_objects_are_looked_at_by_the_analysis(journal: Journal) -> None:
    it = Written(journal, ALL)
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
    it.writers.on_commit(commit)
    calls = {call[0]: call[1] for call in journal.take_calls() if len(call) > 1}
    assert list(calls["AnalysisStatusController.on_edit"]) == [row.ref]
    assert calls["GatewayControllers.on_commit"] is commit


# -- other clusters ----------------------------------------------------------------------------------------------------


async def test_other_clusters_are_written_to_by_whoever_leads_there(journal: Journal) -> None:
    it = Written(journal, {**ALL, "REVISION": "blue", "POD_NAMESPACE": "mesh"})
    remote = it.one("RemoteControllers")
    _, _, make_written, lead, started, attempts = remote.given
    assert not started.is_set()
    assert attempts() is not attempts()
    there: Any = object()
    roots, bundles = make_written(there)
    assert (roots.name, roots.given[0]) == ("RootCertificateController", there)
    choose = roots.given[4]
    assert bundles.given == (there, "blue", "mesh", bundles.given[3], [MUTATING], it.pace, choose, it.counts)
    assert bundles.given[3]() == "roots"
    task = asyncio.create_task(lead(there, roots))
    for _ in range(3):
        await asyncio.sleep(0)
    assert journal.made[-1].name == "LeaderElection"
    lock, precedence = journal.made[-2], journal.made[-3]
    assert lock.given == (there, CONFIG_MAP, "mesh", "istio-namespace-controller-election")
    assert precedence.given == (there, f"{REMOTE_PREFIX}blue", it.pace, choose)
    assert journal.made[-1].given[:3] == (lock, "istiod-1", TERMS)
    assert len(journal.made[-1].given) == 5
    assert journal.lines == ["LeaderPriority.start", "LeaderElection.run"]
    await cancel_tasks(task)
    assert journal.lines[2:] == ["LeaderPriority.stop"]
    await it.writers.start()
    assert started.is_set()
    await it.writers.stop()


async def test_without_elections_every_replica_writes_to_other_clusters(journal: Journal) -> None:
    it = Written(journal, {**ALL, "ENABLE_LEADER_ELECTION": "false"})
    _, _, make_written, lead, _, _ = it.one("RemoteControllers").given
    there: Any = object()
    roots, _ = make_written(there)
    task = asyncio.create_task(lead(there, roots))
    await asyncio.sleep(0)
    assert journal.lines == ["RootCertificateController.run"]
    await cancel_tasks(task)


async def test_only_a_control_plane_outside_writes_to_other_clusters(journal: Journal) -> None:
    client: Any = object()
    await Written(journal, {}).writers.run_remote("west", client)
    assert journal.lines == []
    it = Written(journal, {"EXTERNAL_ISTIOD": "true"})
    task = asyncio.create_task(it.writers.run_remote("west", client))
    await asyncio.sleep(0)
    assert journal.lines == ["RemoteControllers.run"]
    await cancel_tasks(task)
