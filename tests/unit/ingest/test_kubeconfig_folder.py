"""Kubeconfigs of other clusters as files of a folder."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import yaml

from pilot.ingest.cluster.kubeconfig_folder import cluster_of, read_kubeconfigs
from pilot.ingest.cluster.remote_clusters import Options, RemoteClusters
from pilot.ingest.problems import ProblemStore
from pilot.lib.metrics.metrics import Metrics
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, kubeconfig, make_rng, until, watch_options
from tests.unit.ingest.test_remote_clusters import Clusters

WEST = {
    "contexts": [{"name": "b", "context": {"cluster": "west"}}, {"name": "a", "context": {"cluster": "east"}}],
    "clusters": [{"name": "north"}],
}


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ({**WEST, "current-context": "b"}, "west"),
        ({**WEST, "current-context": "c"}, "east"),
        (WEST, "east"),
        ({"clusters": [{"name": "z"}, {"name": "y"}]}, "y"),
        ({"contexts": [{"name": "a"}], "clusters": [{"name": "z"}]}, "z"),
    ],
)
def test_cluster_of_a_kubeconfig(plain: dict[str, Any], expected: str) -> None:
    assert cluster_of(plain) == expected


@pytest.mark.parametrize("plain", [{}, [], None, "text", {"clusters": []}])
def test_kubeconfig_without_a_cluster_is_rejected(plain: Any) -> None:
    with pytest.raises(ValueError, match=r"not a mapping|contains no cluster"):
        cluster_of(plain)


def test_only_yaml_files_are_read(tmp_path: pathlib.Path) -> None:
    for name in ("a.yaml", "b.yml", "c.json", ".d.yaml"):
        (tmp_path / name).write_text("clusters: [{name: x}]")
    (tmp_path / "e.yaml").write_text("clusters: [")
    assert sorted(read_kubeconfigs(str(tmp_path))) == ["a.yaml", "b.yml"]
    assert read_kubeconfigs(str(tmp_path / "none")) == {}


async def test_clusters_follow_their_files(tmp_path: pathlib.Path) -> None:
    servers = [ApiServer() for _ in range(3)]
    for server in servers:
        await server.start()
    clusters = Clusters(*servers)
    for server, name in zip(servers[1:], ("a", "b"), strict=True):
        plain = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"ports": [{"port": 80}]},
        }
        server.put(plain)
    problems = ProblemStore(lambda _: None)
    options = Options("Kubernetes", "istio-system", folder=str(tmp_path))
    remote = RemoteClusters(
        client_of(servers[0]), options, clusters.join, problems, watch_options(), make_rng(1), Metrics()
    )
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(kubeconfig(servers[1])).replace("test", "west"))
    await remote.start()
    await remote.synced()
    assert list(remote.clusters) == ["west"]
    assert clusters.services() == {"west/a"}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(kubeconfig(servers[2])))
    await until(lambda: clusters.services() == {"west/a", "test/b"})
    (tmp_path / "one.yaml").unlink()
    await until(lambda: clusters.services() == {"test/b"})
    (tmp_path / "two.yaml").write_text(
        yaml.safe_dump({**kubeconfig(servers[2]), "users": [{"name": "test", "user": {"exec": {"command": "x"}}}]})
    )
    await until(lambda: len(problems) == 1)
    assert [(problem.code, problem.file) for problem in problems] == [("bad-kubeconfig", f"{tmp_path}/two.yaml")]
    assert list(remote.clusters) == ["test"], "an unusable kubeconfig keeps the last usable one"
    await remote.stop()
    for server in servers:
        await server.stop()
