"""The sources that the mesh config names: folders, servers of objects over xDS, and whether the own cluster's API server is one.

They are opened once, when a process starts, as the mesh config says then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from pilot.bootstrap.kubernetes import IngestTarget
from pilot.bootstrap.server_credentials import ReadSecret, server_credentials, server_name
from pilot.config.config_source import AddressFault, SourceAddress, parse_source_address
from pilot.config.mesh.mesh_config import ConfigSource, MeshConfig
from pilot.config.problem import Problem, Severity
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.file_source import FileSource
from pilot.ingest.mcp_source import McpSource
from pilot.lib.backoff import Backoff
from pilot.lib.log import scope
from pilot.lib.start_error import StartError
from pilot.mcp import stream
from pilot.settings import Settings

BACKOFF = Backoff(0.5, 30.0)
STEP = 2
"""Ranks between two sources that follow each other: the API server has one for its remote clusters too."""
_log = scope("config")


class ConfigSources:
    """`kubernetes_rank` is the rank of the API server: sources that are named before `k8s://` come before it, and the others behind. `read_secret`
    reads the roots that a `credentialName` means; None without an API server."""

    def __init__(
        self, settings: Settings, target: IngestTarget, kubernetes_rank: int, read_secret: ReadSecret | None
    ) -> None:
        self._settings, self._target, self._rank, self._read_secret = settings, target, kubernetes_rank, read_secret
        self._choose = random.Random()
        self._opened: tuple[ConfigSource, ...] = ()
        self.folders: list[FileSource] = []
        self.servers: list[tuple[McpSource, stream.McpStream]] = []
        self.has_kubernetes = False

    def open(self, sources: Sequence[ConfigSource]) -> None:
        """Takes the sources of the mesh config; those that are none have been told of where it was validated."""
        self._opened = tuple(sources)
        found = [(source, address) for source in sources if (address := _address(source)) is not None]
        schemes = [address.scheme for _, address in found]
        self.has_kubernetes = "k8s" in schemes
        first = self._rank - STEP * (schemes.index("k8s") if self.has_kubernetes else 0)
        for position, (source, address) in enumerate(found):
            rank = first + STEP * position
            if address.scheme == "fs":
                self.folders.append(self._folder(address.place, rank))
            elif address.scheme == "xds":
                self.servers.append(self._server(source, address.place, rank))

    async def load(self) -> int:
        """Reads all sources but the API server; returns the number of files. It waits for servers as long as it takes: what they have may be
        policies that must not be missing."""
        for _, follower in self.servers:
            await follower.start()
        try:
            count = sum([await asyncio.to_thread(folder.load_initial) for folder in self.folders])
        except OSError as error:
            raise StartError(f"configSources: {error.filename}: {error.strerror or error}") from error
        for source, _ in self.servers:
            if not source.synced.is_set():
                _log.info("waiting for %s", source.name)
            await source.synced.wait()
        return count

    async def follow(self) -> None:
        """Follows the folders from now on; servers are followed since they were loaded."""
        for folder in self.folders:
            await folder.start()

    async def stop(self) -> None:
        """Follows nothing any more."""
        for folder in self.folders:
            await folder.stop()
        for _, follower in self.servers:
            await follower.stop()

    def configured(self, mesh: MeshConfig) -> None:
        """Tells of sources that a later mesh config names: they are read when the process starts again."""
        changed = mesh.config_sources != self._opened
        message = "other sources than those that this process began with: they are read when it starts again"
        problem = Problem(code="needs-restart", path="configSources", message=message, severity=Severity.WARNING)
        self._target.problems.replace(("configSources", ""), (problem,) if changed else ())

    def _folder(self, path: str, rank: int) -> FileSource:
        ingest, target = self._settings.ingest, self._target
        return FileSource(
            path,
            target.batch,
            target.ledger.source(rank, path),
            self._origin(),
            target.read,
            ingest.largest_file,
            ingest.state_dir,
        )

    def _server(self, source: ConfigSource, place: str, rank: int) -> tuple[McpSource, stream.McpStream]:
        """Returns what takes the objects of a server, and what follows it."""
        target, tls = self._target, source.tls_settings
        kinds = [kind for kind in target.read if kind.is_over_xds]
        objects = McpSource(f"xds://{place}", kinds, target.batch, target.ledger, rank, self._origin(), target.problems)
        reached = stream.McpSourceServer(place, lambda: server_credentials(tls, self._read_secret), server_name(tls))
        return objects, stream.McpStream(
            reached, self._client(), objects.types, objects.receive, objects.told, BACKOFF, self._choose
        )

    def _client(self) -> stream.McpClient:
        registry, pod = self._settings.mesh.registry, self._settings.process.pod_name or "pyistiod"
        node = f"sidecar~127.0.0.1~{pod}.{registry.namespace}~{registry.namespace}.svc.{registry.domain}"
        return stream.McpClient(node, registry.namespace, self._settings.ingest.revision)

    def _origin(self) -> DocumentOrigin:
        return DocumentOrigin(self._settings.mesh.registry.cluster_id, True, self._settings.ingest.revision)


def _address(source: ConfigSource) -> SourceAddress | None:
    try:
        return parse_source_address(source.address)
    except AddressFault:
        return None
