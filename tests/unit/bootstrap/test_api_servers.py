"""What is read from API servers and from the sources of a mesh config, by the settings, and how all of it becomes one first commit."""

from __future__ import annotations

import asyncio
import pathlib
from types import SimpleNamespace
from typing import Any

import pytest

from pilot.bootstrap.clusters import api_servers as kubernetes
from pilot.bootstrap.clusters.api_servers import ApiServers, IngestTarget, find_credentials, mesh_file_paths
from pilot.bootstrap.security.secret_store import SecretError
from pilot.config.group_kind import GroupKind
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.kube_mesh import MESH_ROW, NETWORKS_ROW
from pilot.ingest.problems import ProblemStore
from pilot.ingest.remote_clusters import Options
from pilot.kube.api_access import InCluster, KubeconfigFile
from pilot.kube.api_errors import ConfigurationError, KubeError, NotFound
from pilot.kube.informer import WatchOptions
from pilot.lib.backoff import Backoff
from pilot.lib.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.settings.parse import load
from testing.mesh.part_recorder import Journal, StandIn

ENTRY, SECRET = GroupKind("networking.istio.io", "ServiceEntry"), GroupKind("", "Secret")
ENTRIES = GroupKind("networking.istio.io", "WorkloadEntry")
READ = [SimpleNamespace(id=one) for one in (ENTRY, SECRET, ENTRIES)]
PACE = WatchOptions(Backoff(1.0, 2.0))


def ledger_source(rank: int, name: str) -> tuple[str, int, str]:
    return "part", rank, name


def target() -> IngestTarget:
    ledger: Any = SimpleNamespace(source=ledger_source)
    mesh: Any = object()
    batch: Any = object()
    read: Any = READ
    return IngestTarget(mesh, read, batch, ledger, ProblemStore(), Metrics())


# -- which API server --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "flags", "has_folders", "found"),
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
def test_an_api_server_is_reached_by_a_kubeconfig_or_as_a_pod(
    environ: dict[str, str], flags: tuple[str, ...], has_folders: bool, found: Any
) -> None:
    credentials = find_credentials(load(list(flags), environ).settings.kubernetes, has_folders)
    if isinstance(credentials, KubeconfigFile):
        assert (credentials._path, credentials._context) == found
    else:
        assert (credentials is not None and type(credentials) is InCluster and "pod") == (found or False)


@pytest.mark.parametrize("kubeconfig", ["", "a"])
@pytest.mark.parametrize(("has_mesh", "has_networks"), [(True, False), (False, True)])
def test_files_of_the_mesh_config_that_are_not_there_are_maps_where_there_is_an_api_server(
    tmp_path: pathlib.Path, kubeconfig: str, has_mesh: bool, has_networks: bool
) -> None:
    mesh, networks = tmp_path / "mesh", tmp_path / "networks"
    for path, exists in ((mesh, has_mesh), (networks, has_networks)):
        if exists:
            path.write_text("")
    settings = load([f"--meshConfig={mesh}", f"--networksConfig={networks}", f"--kubeconfig={kubeconfig}"], {}).settings
    every = not kubeconfig
    assert mesh_file_paths(settings) == (
        str(mesh) if has_mesh or every else "",
        str(networks) if has_networks or every else "",
    )


# -- what is read of it ------------------------------------------------------------------------------------------------


class Api:
    """The API servers of a control plane, of stand-ins."""

    def __init__(
        self, journal: Journal, environ: dict[str, str] | None = None, *flags: str, run_remote: Any = None
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
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    made = Journal()
    made.take_over(
        monkeypatch,
        kubernetes,
        "ApiClient",
        "Throttle",
        "KubeSource",
        "MeshConfigMaps",
        "RemoteClusters",
        "RemoteCluster",
    )
    made.take_over(monkeypatch, kubernetes, "TokenReviewers", "SecretStore")
    for name in ("ApiClient", "RemoteClusters"):  # what the others ask of them
        patched = getattr(kubernetes, name)
        monkeypatch.setattr(kubernetes, name, _with_clusters(patched))
    return made


def _with_clusters(make: Any) -> Any:
    def made(*given: Any) -> StandIn:
        one: StandIn = make(*given)
        one.__dict__.update(clusters={"west": "a cluster"})
        return one

    return made


def test_everything_of_the_own_cluster_is_read(journal: Journal) -> None:
    it = Api(
        journal, {"REVISION": "blue", "CLUSTER_ID": "Kubernetes"}, "--kubernetesApiQPS=5", "--kubernetesApiBurst=9"
    )
    client, source = journal.made[1], journal.one("KubeSource")
    assert journal.one("Throttle").given == (5.0, 9)
    assert client.given == (it.credentials, journal.one("Throttle"))
    assert it.kubernetes.client is client
    given = source.given
    assert given[:6] == (client, it.target.batch, it.target.ledger, 7, DocumentOrigin("Kubernetes", True, "blue"), READ)
    assert (given[6]._replace(on_failure=PACE.on_failure), given[8]) == (PACE, "")
    given[6].on_failure()
    assert (
        'controller_sync_errors_total{cluster="Kubernetes"} 1' in it.target.metrics.exposition().decode().splitlines()
    )
    maps = journal.one("MeshConfigMaps").given
    assert maps == (
        client,
        "istio-system",
        ["istio-blue"],
        [MESH_ROW, NETWORKS_ROW],
        it.target.batch,
        it.target.problems,
        PACE,
        given[7],
    )
    remote, options = journal.one("RemoteClusters").given, Options("Kubernetes", "istio-system", (), 30.0, "")
    assert remote == (client, options, it.kubernetes._join, it.target.problems, PACE, given[7], it.target.metrics)
    assert journal.one("TokenReviewers").given == (client, ("", "Kubernetes", "alias"), {"west": "a cluster"})


def test_settings_of_what_is_read_reach_who_reads(journal: Journal, tmp_path: pathlib.Path) -> None:
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
    assert journal.one("KubeSource").given[8] == "shop"
    assert journal.one("MeshConfigMaps").given[1:4] == ("mesh", ["shared", "istio"], [NETWORKS_ROW])
    assert journal.one("RemoteClusters").given[1] == Options("Kubernetes", "mesh", ("exec",), 5.0, "/configs")


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
async def test_of_other_clusters_some_kinds_can_be_left_out(
    journal: Journal, environ: dict[str, str], kinds: list[GroupKind]
) -> None:
    it, told = Api(journal, environ), list[Any]()

    async def beside(cluster: str, client: Any) -> None:
        told.append((cluster, client))

    credentials: Any = object()
    it.kubernetes._join("west", credentials)
    own, source = [one for one in journal.made if one.name == "KubeSource"]
    client = [one for one in journal.made if one.name == "ApiClient"][-1]
    assert [kind.id for kind in own.given[5]] == [ENTRY, SECRET, ENTRIES]
    assert source.given[:5] == (client, it.target.batch, it.target.ledger, 8, DocumentOrigin("west", False, ""))
    assert [kind.id for kind in source.given[5]] == kinds
    assert client.given[0] is credentials
    given = journal.one("RemoteCluster").given
    assert given == (client, source, PACE, source.given[7], it.target.metrics.cluster_status, None)
    Api(journal, environ, run_remote=beside).kubernetes._join("east", credentials)
    other: Any = journal.made[-1]
    await other.given[5]()
    assert told == [("east", other.given[0])]


@pytest.mark.parametrize(
    ("environ", "elsewhere"),
    [
        ({}, False),
        ({"EXTERNAL_ISTIOD": "true"}, False),
        ({"LOCAL_CLUSTER_SECRET_WATCHER": "true"}, False),
        ({"EXTERNAL_ISTIOD": "true", "LOCAL_CLUSTER_SECRET_WATCHER": "true"}, True),
    ],
)
def test_secrets_of_clusters_are_read_where_the_process_runs_if_settings_say_so(
    journal: Journal, environ: dict[str, str], elsewhere: bool
) -> None:
    it = Api(journal, environ)
    client = journal.one("RemoteClusters").given[0]
    assert (client is not it.kubernetes.client) is elsewhere
    assert not elsewhere or isinstance(client.given[0], InCluster)


@pytest.mark.parametrize(
    ("environ", "names"),
    [({}, ("istio-ca-secret",)), ({"USE_CACERTS_FOR_SELF_SIGNED_CA": "true"}, ("istio-ca-secret", "cacerts"))],
)
async def test_a_root_is_kept_in_a_secret_of_the_own_namespace(
    journal: Journal, environ: dict[str, str], names: tuple[str, ...]
) -> None:
    it = Api(journal, {**environ, "POD_NAMESPACE": "mesh"})
    store: Any = it.kubernetes.root_store()
    assert store.given == (it.kubernetes.client, "mesh", asyncio.get_running_loop(), names)


async def test_a_secret_is_read_from_the_own_namespace(journal: Journal) -> None:
    it, answers, asked = Api(journal, {"POD_NAMESPACE": "mesh"}), list[Any](), list[tuple[str, str]]()

    async def call(method: str, path: str) -> bytes:
        asked.append((method, path))
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return bytes(answer)

    client: Any = it.kubernetes.client
    client.call = call
    answers[:] = [b'{"data": {"a": "Yg=="}}', b"{}"][::-1]
    assert await it.kubernetes.read_secret("cacerts") == {"a": b"b"}
    assert await it.kubernetes.read_secret("cacerts") == {}
    assert asked == [("GET", "/api/v1/namespaces/mesh/secrets/cacerts")] * 2
    answers[:] = [NotFound(404, "NotFound", "no")]
    assert await it.kubernetes.read_secret("cacerts") == {}
    answers[:] = [KubeError("503 busy")]
    with pytest.raises(SecretError, match=r"^Secret cacerts: 503 busy$"):
        await it.kubernetes.read_secret("cacerts")


@pytest.mark.parametrize("reads", [True, False])
async def test_what_is_read_first_is_the_mesh_config_and_what_is_waited_for_last_are_other_clusters(
    journal: Journal, reads: bool
) -> None:
    def reads_configuration() -> bool:
        journal.lines.append("asked")
        return reads

    it = Api(journal)
    given: list[Any] = []
    source: Any = it.kubernetes.source

    async def start(configuration: bool) -> None:
        given.append(configuration)
        journal.lines.append("KubeSource.start")

    source.start = start
    await it.kubernetes.start(reads_configuration)
    assert given == [reads]
    assert journal.lines == [
        "credentials",
        "MeshConfigMaps.start",
        "MeshConfigMaps.synced",
        "asked",
        "KubeSource.start",
        "RemoteClusters.start",
        "KubeSource.synced",
        "RemoteClusters.synced",
    ]
    journal.lines.clear()
    closed: list[str] = []
    for client in {it.kubernetes.client, it.kubernetes._secrets_client}:
        client.close = lambda: _done(closed)  # type: ignore[method-assign]
    await it.kubernetes.stop()
    assert journal.lines == ["RemoteClusters.stop", "KubeSource.stop", "MeshConfigMaps.stop"]
    assert closed == ["closed"] * 2, "closing twice does no harm"


async def _done(closed: list[str]) -> None:
    closed.append("closed")


async def test_access_that_cannot_be_used_ends_the_start(journal: Journal) -> None:
    it = Api(journal)

    async def load_wrong() -> None:
        raise ConfigurationError("kubeconfig: nonsense")

    it.credentials.load = load_wrong
    with pytest.raises(StartError, match=r"^kubeconfig: nonsense$"):
        await it.kubernetes.start(lambda: True)


async def test_a_start_that_is_cancelled_leaves_nothing_running(journal: Journal) -> None:
    it, closed = Api(journal), list[str]()
    client: Any = it.kubernetes.client
    client.close = lambda: _done(closed)

    async def cancelled() -> None:
        raise asyncio.CancelledError

    it.credentials.load = cancelled
    with pytest.raises(asyncio.CancelledError):
        await it.kubernetes.start(lambda: True)
    assert journal.lines == ["RemoteClusters.stop", "KubeSource.stop", "MeshConfigMaps.stop"]
    assert closed
