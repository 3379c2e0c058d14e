"""What a control plane reads from Kubernetes, by its settings."""
from __future__ import annotations

import os
import random
from typing import NamedTuple

from pilot.ingest.batch import Batch
from pilot.ingest.decode import Origin
from pilot.ingest.kube_kinds import read_kinds
from pilot.ingest.kube_mesh import MESH_ROW, NETWORKS_ROW, MeshConfigMaps
from pilot.ingest.kube_source import KubeSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.kube.access import Credentials, InCluster, KubeconfigFile
from pilot.kube.client import Client
from pilot.kube.errors import ConfigurationError
from pilot.kube.follow import Pace
from pilot.kube.throttle import Throttle
from pilot.lib.start_error import StartError
from pilot.model.inputs import Mesh
from pilot.settings import Settings
from pilot.settings.kubernetes import KubernetesSettings


def find_credentials(settings: KubernetesSettings, has_folders: bool) -> Credentials | None:
    """Returns how the API server is reached; None where none is to be used."""
    path = settings.kubeconfig or ("" if has_folders else settings.kubeconfig_env)
    if path:
        return KubeconfigFile(path, settings.context)
    return InCluster() if settings.service_host else None


def mesh_file_paths(settings: Settings) -> tuple[str, str]:
    """Returns the files of the mesh config and of the networks; "" for one that is not there and whose place a ConfigMap takes."""
    used = find_credentials(settings.kubernetes, bool(settings.ingest.config_dirs)) is not None
    mesh, networks = settings.ingest.mesh_config, settings.ingest.networks_config
    return mesh if not used or os.path.exists(mesh) else "", networks if not used or os.path.exists(networks) else ""


class Target(NamedTuple):
    """Where what is read goes."""

    mesh: Mesh
    batch: Batch
    ledger: Ledger
    problems: ProblemStore


class Kubernetes:
    """The own cluster's API server. `start` returns when everything has been read; it may take as long as the server likes."""

    def __init__(self, credentials: Credentials, settings: Settings, target: Target, folders: int, pace: Pace | None = None) -> None:
        kubernetes, registry = settings.kubernetes, settings.mesh.registry
        self._credentials = credentials
        self.client = Client(credentials, Throttle(kubernetes.qps, kubernetes.burst))
        pace = pace or Pace(streams=kubernetes.watch_lists)
        choose = random.Random()
        kinds = [kind for kind in read_kinds(target.mesh.catalogue, kubernetes.ignored, kubernetes.included) if kind.per_cluster or not folders]
        origin = Origin(registry.cluster_id, True, settings.ingest.revision)
        self._source = KubeSource(self.client, target.batch, target.ledger, folders, origin, kinds, pace, choose)
        revision = settings.ingest.revision
        names = [name for name in (kubernetes.shared_mesh_config, f"istio-{revision}" if revision else "istio") if name]
        rows = [row for row, path in zip((MESH_ROW, NETWORKS_ROW), mesh_file_paths(settings), strict=True) if not path]
        self._mesh = MeshConfigMaps(self.client, registry.namespace, names, rows, target.batch, target.problems, pace, choose)

    async def start(self) -> None:
        """Reads everything, and follows it from then on. StartError where the configuration of the access cannot be used."""
        try:
            await self._credentials.load()
            await self._mesh.start()
            await self._source.start()
            await self._mesh.synced()
            await self._source.synced()
        except ConfigurationError as error:
            raise StartError(str(error)) from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Follows nothing any more."""
        await self._source.stop()
        await self._mesh.stop()
        await self.client.close()
