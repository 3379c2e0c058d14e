"""Resources read from API servers and mesh config sources, and their combination into one first commit."""

from __future__ import annotations

import asyncio
import pathlib
from types import SimpleNamespace
from typing import Any

import pytest

from pilot.bootstrap.clusters import api_servers as kubernetes
from pilot.bootstrap.clusters.api_servers import (
    ApiServers,
    IngestTarget,
    find_credentials,
    mesh_config_name,
    mesh_file_paths,
    required_mesh_files,
)
from pilot.bootstrap.security.secret_store import SecretError
from pilot.config.group_kind import GroupKind
from pilot.ingest.cluster.kube_mesh import MESH_ROW, NETWORKS_ROW
from pilot.ingest.cluster.remote_clusters import Options
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.problems import ProblemStore
from pilot.kube.api_access import InCluster, KubeconfigFile
from pilot.kube.api_errors import ConfigurationError, KubeError, NotFound
from pilot.kube.informer import WatchOptions
from pilot.lib.backoff import Backoff
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.settings.parse import load
from testing.mesh.part_recorder import FakePart, PartRecorder

ENTRY, SECRET = GroupKind("networking.istio.io", "ServiceEntry"), GroupKind("", "Secret")
ENTRIES = GroupKind("networking.istio.io", "WorkloadEntry")
KINDS = [SimpleNamespace(id=kind) for kind in (ENTRY, SECRET, ENTRIES)]
PACE = WatchOptions(Backoff(1.0, 2.0))


def ledger_source(rank: int, name: str) -> tuple[str, int, str]:
    return "part", rank, name


def target() -> IngestTarget:
    ledger: Any = SimpleNamespace(source=ledger_source)
    mesh: Any = object()
    batch: Any = SimpleNamespace(waiting=lambda table, key: None)
    kinds: Any = KINDS
    return IngestTarget(mesh, kinds, batch, ledger, ProblemStore(), Metrics())


# -- API server selection ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "flags", "has_folders", "expected"),
    [
        ({}, (), False, None),
        ({}, ("--kubeconfig=a",), True, ("a", "")),
        ({"KUBECONFIG": "b"}, ("--kubeconfig=a", "--context=c"), False, ("a", "c")),
        ({"KUBECONFIG": "b"}, (), False, ("b", "")),
        ({"KUBECONFIG": "b"}, (), True, None),
        ({"KUBECONFIG": "b", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, (), True, "pod"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, (), False, "pod"),
    ],
)
def test_credentials_come_from_a_kubeconfig_or_the_pod(
    environ: dict[str, str], flags: tuple[str, ...], has_folders: bool, expected: Any
) -> None:
    credentials = find_credentials(load(list(flags), environ).settings.kubernetes, has_folders)
    if isinstance(credentials, KubeconfigFile):
        assert (credentials._path, credentials._context) == expected
    else:
        assert (credentials is not None and type(credentials) is InCluster and "pod") == (expected or False)


@pytest.mark.parametrize("content", [None, "", "apiVersion: v1\n"])
def test_pod_ignores_a_missing_or_empty_kubeconfig(tmp_path: pathlib.Path, content: str | None) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    environ = {"KUBECONFIG": str(path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    credentials = find_credentials(load([], environ).settings.kubernetes, has_folders=False)
    assert type(credentials) is (KubeconfigFile if content else InCluster)


@pytest.mark.parametrize(
    ("revision", "name"), [("", "istio"), ("default", "istio"), ("canary", "istio-canary")], ids=str
)
def test_mesh_config_of_a_revision(revision: str, name: str) -> None:
    assert mesh_config_name(revision) == name


@pytest.mark.parametrize("kubeconfig", ["", "a"])
@pytest.mark.parametrize(("has_mesh", "has_networks"), [(True, False), (False, True)])
def test_missing_mesh_files_fall_back_to_config_maps_with_an_api_server(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kubeconfig: str, has_mesh: bool, has_networks: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load([f"--kubeconfig={kubeconfig}"], {}).settings
    mesh, networks = settings.ingest.mesh_config, settings.ingest.networks_config
    for path, exists in ((mesh, has_mesh), (networks, has_networks)):
        if exists:
            pathlib.Path(path).parent.mkdir(parents=True)
            pathlib.Path(path).write_text("")
    every = not kubeconfig
    assert mesh_file_paths(settings) == (mesh if has_mesh or every else "", networks if has_networks or every else "")
    assert required_mesh_files(settings) == frozenset()


def test_mesh_files_of_flags_are_required_even_with_an_api_server() -> None:
    settings = load(["--meshConfig=/none", "--kubeconfig=a"], {}).settings
    assert mesh_file_paths(settings) == ("/none", "")
    assert required_mesh_files(settings) == {"/none"}


# -- reads -------------------------------------------------------------------------------------------------------------


class Api:
    """The API servers of a control plane, with stand-ins for their parts."""

    def __init__(
        self, journal: PartRecorder, environ: dict[str, str] | None = None, *flags: str, run_remote: Any = None
    ) -> None:
        self.journal, self.target, self.credentials = journal, target(), SimpleNamespace(load=self._load)
        self.settings, self.loaded = load(["--kubeconfig=a", *flags], environ or {}).settings, 0
        credentials: Any = self.credentials
        self.kubernetes = ApiServers(
            credentials,
            self.settings,
            self.target,
            7,
            {"alias": "Kubernetes", "other": "west"},
            run_remote,
            PACE,
        )

    async def _load(self) -> None:
        self.loaded += 1
        self.journal.lines.append("credentials")


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> PartRecorder:
    recorder = PartRecorder()
    recorder.replace_classes(
        monkeypatch,
        kubernetes,
        "ApiClient",
        "Throttle",
        "KubeSource",
        "MeshConfigMaps",
        "RemoteClusters",
        "RemoteCluster",
    )
    recorder.replace_classes(monkeypatch, kubernetes, "TokenReviewers", "SecretStore")
    for name in ("ApiClient", "RemoteClusters"):  # other parts read attributes of these two
        patched = getattr(kubernetes, name)
        monkeypatch.setattr(kubernetes, name, _with_clusters(patched))
    return recorder


def _with_clusters(factory: Any) -> Any:
    def create(*args: Any) -> FakePart:
        stand_in: FakePart = factory(*args)
        stand_in.__dict__.update(clusters={"west": "a cluster"})
        return stand_in

    return create


def test_local_cluster_reads_all_kinds(journal: PartRecorder) -> None:
    api = Api(
        journal, {"REVISION": "blue", "CLUSTER_ID": "Kubernetes"}, "--kubernetesApiQPS=5", "--kubernetesApiBurst=9"
    )
    client, source = journal.parts[1], journal.part("KubeSource")
    throttle, other_throttle = (part for part in journal.parts if part.name == "Throttle")
    assert throttle.args == other_throttle.args == (5.0, 9)
    assert client.args == (api.credentials, throttle)
    assert api.kubernetes.client is client
    caller_client: Any = api.kubernetes.caller_client
    assert caller_client.args == (api.credentials, other_throttle)
    source_args = source.args
    assert source_args[:6] == (
        client,
        api.target.batch,
        api.target.ledger,
        7,
        DocumentOrigin("Kubernetes", True, "blue"),
        KINDS,
    )
    assert (source_args[6]._replace(on_failure=PACE.on_failure), source_args[8]) == (PACE, "")
    source_args[6].on_failure()
    assert (
        'controller_sync_errors_total{cluster="Kubernetes"} 1' in api.target.metrics.exposition().decode().splitlines()
    )
    maps_args = journal.part("MeshConfigMaps").args
    assert maps_args == (
        client,
        "istio-system",
        ["istio-blue"],
        [MESH_ROW, NETWORKS_ROW],
        api.target.batch,
        api.target.problems,
        PACE,
        source_args[7],
    )
    remote, options = journal.part("RemoteClusters").args, Options("Kubernetes", "istio-system", (), 30.0, "")
    assert remote == (
        client,
        options,
        api.kubernetes._join,
        api.target.problems,
        PACE,
        source_args[7],
        api.target.metrics,
    )
    *reviewers, new_throttle, on_rejected = journal.part("TokenReviewers").args
    assert reviewers == [caller_client, ("", "Kubernetes", "alias"), {"west": "a cluster"}]
    assert new_throttle().args == (5.0, 9)
    on_rejected()
    metrics = api.target.metrics.exposition().decode().splitlines()
    assert 'pilot_caller_limits_exceeded{limit="token_reviews"} 1' in metrics


def test_settings_reach_the_sources(journal: PartRecorder, tmp_path: pathlib.Path) -> None:
    (tmp_path / "mesh").write_text("")
    environ = {
        "ISTIO_WATCH_NAMESPACE": "shop",
        "SHARED_MESH_CONFIG": "shared",
        "PILOT_REMOTE_CLUSTER_TIMEOUT": "5s",
        "POD_NAMESPACE": "mesh",
        "PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS": "exec",
        "PILOT_MULTICLUSTER_KUBECONFIG_PATH": "/configs",
    }
    Api(journal, environ, f"--meshConfig={tmp_path / 'mesh'}")
    assert journal.part("KubeSource").args[8] == "shop"
    assert journal.part("MeshConfigMaps").args[1:4] == ("mesh", ["shared", "istio"], [NETWORKS_ROW])
    assert journal.part("RemoteClusters").args[1] == Options("Kubernetes", "mesh", ("exec",), 5.0, "/configs")


@pytest.mark.parametrize(
    ("environ", "kinds"),
    [
        ({}, [ENTRY, SECRET, ENTRIES]),
        ({"PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER": "false"}, [ENTRY, ENTRIES]),
        ({"PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY": "false"}, [ENTRY, SECRET]),
        (
            {
                "PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER": "false",
                "PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY": "false",
            },
            [ENTRY],
        ),
    ],
)
async def test_settings_exclude_kinds_from_remote_clusters(
    journal: PartRecorder, environ: dict[str, str], kinds: list[GroupKind]
) -> None:
    api, calls = Api(journal, environ), list[Any]()

    async def run_remote(cluster: str, client: Any) -> None:
        calls.append((cluster, client))

    credentials: Any = object()
    api.kubernetes._join("west", credentials)
    local_source, source = [part for part in journal.parts if part.name == "KubeSource"]
    client = [part for part in journal.parts if part.name == "ApiClient"][-1]
    assert [kind.id for kind in local_source.args[5]] == [ENTRY, SECRET, ENTRIES]
    assert source.args[:5] == (client, api.target.batch, api.target.ledger, 8, DocumentOrigin("west", False, ""))
    assert [kind.id for kind in source.args[5]] == kinds
    assert client.args[0] is credentials
    args = journal.part("RemoteCluster").args
    assert args == (client, source, PACE, source.args[7], api.target.metrics.cluster_status, None)
    Api(journal, environ, run_remote=run_remote).kubernetes._join("east", credentials)
    other: Any = journal.parts[-1]
    await other.args[5]()
    assert calls == [("east", other.args[0])]


@pytest.mark.parametrize(
    ("environ", "separate_client"),
    [
        ({}, False),
        ({"EXTERNAL_ISTIOD": "true"}, False),
        ({"LOCAL_CLUSTER_SECRET_WATCHER": "true"}, False),
        ({"EXTERNAL_ISTIOD": "true", "LOCAL_CLUSTER_SECRET_WATCHER": "true"}, True),
    ],
)
def test_external_istiod_reads_cluster_secrets_where_it_runs_if_configured(
    journal: PartRecorder, environ: dict[str, str], separate_client: bool
) -> None:
    api = Api(journal, environ)
    client = journal.part("RemoteClusters").args[0]
    assert (client is not api.kubernetes.client) is separate_client
    assert not separate_client or isinstance(client.args[0], InCluster)


@pytest.mark.parametrize(
    ("environ", "names"),
    [({}, ("istio-ca-secret",)), ({"USE_CACERTS_FOR_SELF_SIGNED_CA": "true"}, ("istio-ca-secret", "cacerts"))],
)
async def test_root_is_stored_in_a_secret_of_the_local_namespace(
    journal: PartRecorder, environ: dict[str, str], names: tuple[str, ...]
) -> None:
    api = Api(journal, {**environ, "POD_NAMESPACE": "mesh"})
    store: Any = api.kubernetes.root_store()
    assert store.args == (api.kubernetes.client, "mesh", asyncio.get_running_loop(), names)


async def test_secret_is_read_from_the_local_namespace(journal: PartRecorder) -> None:
    api, responses, requests = Api(journal, {"POD_NAMESPACE": "mesh"}), list[Any](), list[tuple[str, str]]()

    async def call(method: str, path: str) -> bytes:
        requests.append((method, path))
        response = responses.pop()
        if isinstance(response, Exception):
            raise response
        return bytes(response)

    client: Any = api.kubernetes.client
    client.call = call
    responses[:] = [b'{"data": {"a": "Yg=="}}', b"{}"][::-1]
    assert await api.kubernetes.read_secret("cacerts") == {"a": b"b"}
    assert await api.kubernetes.read_secret("cacerts") == {}
    assert requests == [("GET", "/api/v1/namespaces/mesh/secrets/cacerts")] * 2
    responses[:] = [NotFound(404, "NotFound", "no")]
    assert await api.kubernetes.read_secret("cacerts") == {}
    responses[:] = [KubeError("503 busy")]
    with pytest.raises(SecretError, match=r"^Secret cacerts: 503 busy$"):
        await api.kubernetes.read_secret("cacerts")


@pytest.mark.parametrize("reads", [True, False])
async def test_mesh_config_syncs_first_and_remote_clusters_last(journal: PartRecorder, reads: bool) -> None:
    def reads_configuration() -> bool:
        journal.lines.append("reads_configuration")
        return reads

    api = Api(journal)
    starts: list[Any] = []
    source: Any = api.kubernetes.source

    async def start(configuration: bool) -> None:
        starts.append(configuration)
        journal.lines.append("KubeSource.start")

    source.start = start
    await api.kubernetes.start(reads_configuration)
    assert starts == [reads]
    assert journal.lines == [
        "credentials",
        "MeshConfigMaps.start",
        "MeshConfigMaps.synced",
        "reads_configuration",
        "KubeSource.start",
        "RemoteClusters.start",
        "KubeSource.synced",
        "RemoteClusters.synced",
    ]
    journal.lines.clear()
    closed: list[str] = []
    for client in {api.kubernetes.client, api.kubernetes.caller_client, api.kubernetes._secrets_client}:
        client.close = lambda: record_close(closed)  # type: ignore[method-assign]
    await api.kubernetes.stop()
    assert journal.lines == ["RemoteClusters.stop", "KubeSource.stop", "MeshConfigMaps.stop"]
    assert closed == ["closed"] * 3, "all clients are closed"


async def record_close(closed: list[str]) -> None:
    closed.append("closed")


async def test_unusable_credentials_abort_the_start(journal: PartRecorder) -> None:
    api = Api(journal)

    async def fail_to_load() -> None:
        raise ConfigurationError("kubeconfig: nonsense")

    api.credentials.load = fail_to_load
    with pytest.raises(StartError, match=r"^kubeconfig: nonsense$"):
        await api.kubernetes.start(lambda: True)


async def test_cancelled_start_leaves_nothing_running(journal: PartRecorder) -> None:
    api, closed = Api(journal), list[str]()
    for client in (api.kubernetes.client, api.kubernetes.caller_client):
        client.close = lambda: record_close(closed)  # type: ignore[method-assign]

    async def cancelled() -> None:
        raise asyncio.CancelledError

    api.credentials.load = cancelled
    with pytest.raises(asyncio.CancelledError):
        await api.kubernetes.start(lambda: True)
    assert journal.lines == ["RemoteClusters.stop", "KubeSource.stop", "MeshConfigMaps.stop"]
    assert closed
