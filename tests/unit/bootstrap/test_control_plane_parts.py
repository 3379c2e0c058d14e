"""Composition of a control plane: parts in start order, ports, periodic jobs and pages."""

from __future__ import annotations

import asyncio
import logging
import pathlib
from collections import Counter
from typing import Any

import pytest

from pilot.bootstrap import ControlPlane, StartError, control_plane
from pilot.bootstrap.control_plane import KUBERNETES_RANK, REGISTERED_RANK
from pilot.bootstrap.part import Part
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.debug.history import PERIOD
from pilot.ingest.batch import Commit
from pilot.mesh.tables.database import MESH_CONFIG
from pilot.settings.parse import load
from testing.mesh.clock import VirtualClock
from testing.mesh.part_recorder import PartRecorder
from tests.unit.bootstrap.test_control_plane import ADDRESSES, running

DEFAULT_PARTS = [
    "the watchdog of the event loop",
    "the HTTP port",
    "the monitoring port",
    "allocated addresses",
    "the first load",
    "the issuers' key sets",
    "the host names of gateways",
    "sweeps",
    "the clock of expiry checks",
    "health checks of the mesh",
    "the schedule of health checks",
    "the history for the dashboard",
    "the release of many unused values",
    "memory trimming",
    "the certificate authority",
    "the secure port's certificate",
    "the xDS port",
    "the secure xDS port",
    "the webhooks' certificate",
    "the injector's configuration",
    "the webhooks port",
    "workload registration",
    "the parsers of large files",
    "the watch of the mesh config",
    "the watch of FOLDER",
    "the watch of config sources",
]
WITH_API = [
    "reviews of access to Secrets",
    "the watch of API servers",
    "the controllers",
    "the stored objects that wait",
]


def make(folder: pathlib.Path, environ: dict[str, str] | None = None, **flags: str) -> ControlPlane:
    options = {"configDir": str(folder), "ctrlz_port": "0", **dict.fromkeys(ADDRESSES, "127.0.0.1:0"), **flags}
    return ControlPlane(
        load([f"--{name}={value}" for name, value in options.items()], environ or {}).settings, VirtualClock()
    )


def parts(plane: ControlPlane) -> list[Part]:
    return list(plane.parts._parts)


def names(plane: ControlPlane, folder: pathlib.Path) -> list[str]:
    return [part.name.replace(str(folder), "FOLDER") for part in parts(plane)]


async def test_start_order_of_parts(tmp_path: pathlib.Path) -> None:
    plane = make(tmp_path)
    assert names(plane, tmp_path) == DEFAULT_PARTS
    assert list(plane.ports) == ["HTTP", "monitoring", "xDS", "secure xDS", "webhooks"]


@pytest.mark.parametrize(
    ("environ", "flags", "added", "removed"),
    [
        ({}, {"monitoringAddr": ""}, [], ["the monitoring port"]),
        ({}, {"grpcAddr": ""}, [], ["the xDS port"]),
        ({}, {"secureGRPCAddr": ""}, [], ["the secure xDS port", "the secure port's certificate"]),
        ({}, {"httpsAddr": ""}, [], ["the webhooks port", "the webhooks' certificate"]),
        ({}, {"ctrlz_port": "9876"}, ["the ControlZ port"], []),
        ({"RESOLVE_HOSTNAME_GATEWAYS": "false"}, {}, [], ["the host names of gateways"]),
        ({"ENABLE_CA_SERVER": "false"}, {}, [], ["the certificate authority"]),
        ({"ISTIO_MULTIROOT_MESH": "true"}, {}, ["the publisher of trust roots"], []),
        ({"PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION": "false"}, {}, [], ["workload registration"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, {}, ["trace export"], []),
        ({}, {"kubeconfig": "FOLDER/kubeconfig"}, WITH_API, []),
        (
            {},
            {"kubeconfig": "FOLDER/kubeconfig", "configDir": ""},
            WITH_API,
            ["workload registration", "the watch of FOLDER"],
        ),
    ],
)
async def test_settings_add_and_remove_parts(
    tmp_path: pathlib.Path, environ: dict[str, str], flags: dict[str, str], added: list[str], removed: list[str]
) -> None:
    plane = make(tmp_path, environ, **{name: value.replace("FOLDER", str(tmp_path)) for name, value in flags.items()})
    part_names = names(plane, tmp_path)
    assert sorted(part_names) == sorted([*(name for name in DEFAULT_PARTS if name not in removed), *added])
    if "trace export" in added:
        assert part_names[0] == "trace export", "it stops last"
        await parts(plane)[0].stop()
    if "the ControlZ port" in added:
        assert part_names.index("the ControlZ port") < part_names.index("the first load")
    if "the publisher of trust roots" in added:
        assert (
            part_names.index("the certificate authority")
            < part_names.index("the publisher of trust roots")
            < part_names.index("the xDS port")
        )
    if added == WITH_API:
        assert part_names[-3:] == WITH_API[1:]


async def test_every_folder_is_watched_and_the_first_wins(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = PartRecorder()
    journal.spy(monkeypatch, control_plane, "FileSource", "Ledger")
    local_folder, west_folder = tmp_path / "own", tmp_path / "west"
    plane = make(
        tmp_path,
        {"REVISION": "blue", "PILOT_MAX_CONFIG_FILE_BYTES": "77", "PILOT_STATE_DIR": "/state"},
        configDir=str(local_folder),
    )
    [(path, batch, part, origin, kinds, *rest)] = journal.args_of("FileSource")
    assert (path, batch is plane._batch, kinds is plane._catalogue, rest[:2], len(rest)) == (
        str(local_folder),
        True,
        True,
        [77, "/state"],
        3,
    )
    assert (origin.cluster, origin.own, origin.revision) == ("Kubernetes", True, "blue")
    assert (part._rank, part._name) == (0, str(local_folder))
    argv = [
        f"--configDir={local_folder}",
        f"--configDir=west={west_folder}",
        "--ctrlz_port=0",
        *(f"--{name}=" for name in ADDRESSES),
    ]
    plane = ControlPlane(load(argv, {}).settings, VirtualClock())
    sources = [(args[0], args[2]._rank, args[3].cluster, args[3].own) for args in journal.args_of("FileSource")[1:]]
    assert sources == [(str(local_folder), 0, "Kubernetes", True), (str(west_folder), 1, "west", False)]
    assert 'istiod_managed_clusters{cluster_type="remote"} 1' in plane.metrics.exposition().decode().splitlines()
    assert 1 < KUBERNETES_RANK < REGISTERED_RANK


@pytest.mark.parametrize(
    ("environ", "jobs"),
    [
        ({}, ["HealthChecker.schedule"]),
        ({"PILOT_ENVOY_FILTER_STATS": "true"}, ["HealthChecker.schedule", "PatchMetrics.check"]),
    ],
)
async def test_periodic_jobs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], jobs: list[str]
) -> None:
    journal = PartRecorder()
    journal.spy(monkeypatch, control_plane, "PeriodicJobs")
    plane = make(tmp_path, environ)
    sweeps, ticks, checks, history, releases, memory = journal.args_of("PeriodicJobs")
    assert {args[0] for args in (sweeps, ticks, checks, history, releases, memory)} == {plane._clock}
    assert [args[1] for args in (sweeps, ticks, checks, history, releases, memory)] == [10, 300, 10, PERIOD, 1, 60]
    assert [job.__qualname__ for job in sweeps[2]] == ["Discovery.sweep_in_steps", "NackRecorder.sweep", "Pusher.sweep"]
    assert [job.__qualname__ for job in checks[2]] == jobs
    assert [job.__qualname__ for job in history[2]] == ["DashboardData.sample"]
    assert [type(job).__name__ for job in (*releases[2], *memory[2])] == ["MemoryRelease", "MallocTrimmer"]


async def test_health_findings_cover_connections_and_problems(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = PartRecorder()
    journal.spy(monkeypatch, control_plane, "HealthChecker", "NackRecorder", "Checking", "ControlzPort")
    plane = make(tmp_path, ctrlz_port="9876")
    assert journal.args_of("HealthChecker") == [(plane.db, plane.discovery, plane.problems, plane.metrics.health)]
    assert journal.args_of("NackRecorder") == [(plane.db, plane.discovery, plane._clock)]
    assert journal.args_of("Checking")[0][:3] == (plane.db, plane._clock, plane.problems)
    assert journal.args_of("ControlzPort") == [(plane.addresses.controlz, plane.metrics, plane.end)]


@pytest.mark.parametrize(
    ("environ", "cache", "queues"),
    [
        ({}, False, False),
        ({"PILOT_XDS_CACHE_STATS": "true"}, True, False),
        ({"ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS": "true"}, False, True),
    ],
)
async def test_cache_and_queue_metrics_are_opt_in(
    tmp_path: pathlib.Path, environ: dict[str, str], cache: bool, queues: bool
) -> None:
    plane = make(tmp_path, environ)
    lines = plane.metrics.exposition().decode().splitlines()
    assert plane.discovery.counts_cache is cache
    assert any(line.startswith("xds_cache_size ") for line in lines) is cache
    assert any(line.startswith("pilot_worker_queue_depth{") for line in lines) is queues


async def test_unknown_registry_aborts_the_start(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StartError, match=r"^--registries: unknown registry 'Consul', expected Kubernetes$"):
        make(tmp_path, registries="Consul")


async def test_secret_access_is_swept_with_an_api_server(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = PartRecorder()
    journal.spy(monkeypatch, control_plane, "PeriodicJobs", "SecretAccessReview", "SecretAccess")
    plane = make(tmp_path, {"CLUSTER_ID": "east"}, kubeconfig=str(tmp_path / "kubeconfig"))
    assert plane.api_servers is not None
    assert [job.__qualname__ for job in journal.args_of("PeriodicJobs")[0][2]][-1] == "SecretAccess.sweep"
    assert journal.args_of("SecretAccessReview") == [
        (plane.api_servers.caller_client, "east", {"east"}, plane.api_servers.remote.clusters)
    ]
    assert journal.args_of("SecretAccess")[0][0] is plane.discovery
    assert not len(plane.db.secret_access)
    assert len(make(tmp_path).db.secret_access) == 1, "without an API server all accounts are allowed"


async def test_xds_ports_serve_the_same_mesh(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = PartRecorder()
    journal.spy(monkeypatch, control_plane, "Ads", "GrpcPort", "make_server")
    plane = make(tmp_path, {}, clusterAliases="a=Kubernetes", shutdownDuration="7s")
    plain, secure = journal.args_of("Ads")
    assert plain[:3] == secure[:3] == (plane.discovery, plane.pusher, plane.metrics)
    for options, auth in ((plain[3], plane.security.plain), (secure[3], plane.security.secure)):
        assert (options.admission, options.aliases) == (plane._admission, {"a": "Kubernetes"})
        assert (options.identify_peer, options.authenticate) == (auth.identify_peer, auth.authenticate)
        assert options.authorize is plane.security.authorize
        assert options.nack_log is plane.nacks
    assert plain[3].limits == secure[3].limits
    [(settings, handlers)] = journal.args_of("make_server")
    assert settings is plane.settings.serve
    assert len(handlers) == 1, "only the TLS port issues certificates"
    [(_, address, connections, drain_time)] = journal.args_of("GrpcPort")
    assert (address, str(drain_time)) == (plane.addresses.grpc, "7s")
    assert connections == plane.discovery.connections() or not len(connections)


async def test_plain_port_issues_certificates_without_tls(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = PartRecorder()
    journal.spy(monkeypatch, control_plane, "make_server")
    make(tmp_path, {}, secureGRPCAddr="")
    assert [len(handlers) for _, handlers in journal.args_of("make_server")] == [2]


async def test_in_memory_registration_follows_the_settings(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = PartRecorder()
    journal.spy(monkeypatch, control_plane, "InMemoryRegistration")
    environ = {
        "CLUSTER_ID": "east",
        "PILOT_WORKLOAD_ENTRY_GRACE_PERIOD": "7s",
        "ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY": "false",
    }
    plane = make(tmp_path, environ)
    [(db, batch, part, origin, limits, metrics)] = journal.args_of("InMemoryRegistration")
    assert (db, batch, metrics) == (plane.db, plane._batch, plane.metrics.kubernetes)
    assert (part._rank, part._name, origin.cluster, tuple(limits)) == (
        REGISTERED_RANK,
        "registered workloads",
        "east",
        (7.0, False),
    )
    assert plane._registration is plane._in_memory_registration is not None


# -- a running process -------------------------------------------------------------------------------------------------

PATHS = ("/ready", "/metrics", "/version", "/debug/adsz", "/inject", "/nothing")


async def test_pages_per_port(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path, httpsAddr="") as process:
        assert [(await process.get(path))[0] for path in PATHS] == [200, 404, 404, 200, 404, 404]
        assert [(await process.get(path, "monitoring"))[0] for path in PATHS] == [404, 200, 200, 200, 404, 404]
    async with running(tmp_path, monitoringAddr="") as process:
        assert [(await process.get(path))[0] for path in PATHS] == [200, 200, 200, 200, 404, 404]


@pytest.mark.parametrize(("webhooks", "status"), [("", 400), ("127.0.0.1:0", 404)])
async def test_http_port_serves_webhooks_without_a_webhooks_port(
    tmp_path: pathlib.Path, webhooks: str, status: int
) -> None:
    async with running(tmp_path, httpsAddr=webhooks) as process:
        assert (await process.get("/validate"))[0] == status


async def test_cluster_and_graph_metrics(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as process:
        lines = (await process.get("/metrics", "monitoring"))[1].splitlines()
    assert 'istiod_managed_clusters{cluster_type="local"} 1' in lines
    assert 'istiod_managed_clusters{cluster_type="remote"} 0' in lines
    [nodes] = [line.split()[1] for line in lines if line.startswith("pyistiod_graph_nodes ")]
    assert float(nodes) > 0
    assert not [line for line in lines if line.startswith(("xds_cache_size ", "pilot_worker_queue_depth"))]


def objects(plane: ControlPlane) -> int:
    return sum(len(table) for table in plane.db.tables.values())


class CallRecorder:
    """Recorder in place of a part."""

    def __init__(self, name: str, calls: list[tuple[Any, ...]]) -> None:
        self._name, self._calls = name, calls

    def __getattr__(self, method: str) -> Any:
        return lambda *args: self._calls.append((f"{self._name}.{method}", *args))


async def test_commit_listeners_run_in_order(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plane, calls = make(tmp_path), list[tuple[Any, ...]]()
    for name in (
        "_checking",
        "_key_sets",
        "_gateway_names",
        "_reporter",
        "_config_sources",
        "security",
        "_controllers",
        "webhooks",
    ):
        monkeypatch.setattr(plane, name, CallRecorder(name.lstrip("_"), calls))
    reset_listeners(plane)
    nodes: Any = ["a node"]
    for table in ("pods", MESH_CONFIG):
        commit = Commit(nodes, [(table, "key", None)], 1, 0.0, 0.0, Counter(), 0.0)
        plane._on_commit(commit)
        config = (
            [("config_sources.on_mesh_config", MeshConfig()), ("security.on_mesh_config", MeshConfig())]
            if table == MESH_CONFIG
            else []
        )
        assert calls == [
            ("checking.reached", nodes),
            ("key_sets.reached", nodes),
            ("gateway_names.reached", nodes),
            ("reporter.on_commit", commit),
            *config,
            ("controllers.on_commit", commit),
            ("webhooks.on_commit", commit),
        ]
        calls.clear()
    for listener in plane._stream_commit_listeners:
        listener(nodes)
    assert calls == [("checking.reached", nodes), ("controllers.on_stream_commit", nodes)]
    calls.clear()
    monkeypatch.setattr(plane, "_gateway_names", None)
    monkeypatch.setattr(plane, "_controllers", None)
    reset_listeners(plane)
    plane._on_commit(commit)
    for listener in plane._stream_commit_listeners:
        listener(nodes)
    assert [call for call, *_ in calls] == [
        "checking.reached",
        "key_sets.reached",
        "reporter.on_commit",
        "config_sources.on_mesh_config",
        "security.on_mesh_config",
        "webhooks.on_commit",
        "checking.reached",
    ]


def reset_listeners(plane: ControlPlane) -> None:
    plane._commit_listeners.clear()
    plane._stream_commit_listeners.clear()
    plane._add_commit_listeners()


@pytest.mark.parametrize("ends_early", [True, False])
async def test_end_leaves_nothing_running(
    tmp_path: pathlib.Path, ends_early: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    plane = make(tmp_path)
    if ends_early:
        plane.end()
    task = asyncio.create_task(plane.run())
    async with asyncio.timeout(30):
        while not (plane.ready or task.done()):
            await asyncio.sleep(0.002)
        plane.end()
        await task
        await asyncio.sleep(0)
    assert [message for message in caplog.messages if message.startswith("ready: ")] == (
        [] if ends_early else [f"ready: {objects(plane)} objects"]
    )
    assert [pending.get_name() for pending in asyncio.all_tasks() if pending is not asyncio.current_task()] == []


async def test_failed_start_leaves_nothing_running(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StartError, match=r"^--configDir: .*missing: No such file or directory$"):
        await make(tmp_path / "missing").run()
    await asyncio.sleep(0)
    assert [pending for pending in asyncio.all_tasks() if pending is not asyncio.current_task()] == []
