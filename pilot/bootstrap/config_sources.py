"""The config sources in the mesh config: folders, servers of objects over xDS, and the local cluster's API server.

They are opened once at startup. A later change to the list takes effect after a restart.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import grpc

from pilot.bootstrap.clusters.api_servers import IngestTarget
from pilot.bootstrap.security.secret_store import ReadSecret, SecretError
from pilot.config.mesh.mesh_config import ConfigSource, MeshConfig
from pilot.config.networking.destination_rule import ClientTLSSettings
from pilot.config.problem import Problem, Severity
from pilot.config.source_address import AddressFault, SourceAddress, parse_source_address
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.files.file_source import FileSource
from pilot.ingest.mcp_source import McpSource
from pilot.lib.backoff import Backoff
from pilot.lib.logging.log import scope
from pilot.lib.start_error import StartError
from pilot.mcp import stream
from pilot.settings import Settings

BACKOFF = Backoff(0.5, 30.0)
RANK_STEP = 2
"""Difference between the ranks of consecutive sources. The rank after the API server's is for its remote clusters."""
_ROOT_KEYS = ("cacert", "ca.crt")
_log = scope("config")


class ConfigSources:
    """Opens and reads the config sources.

    `kubernetes_rank` is the rank of the API server. Sources before `k8s://` in the list take precedence over it, and it
    takes precedence over the others. `read_secret` reads the Secrets that `credentialName` refers to. It is None
    without an API server.
    """

    def __init__(
        self, settings: Settings, target: IngestTarget, kubernetes_rank: int, read_secret: ReadSecret | None
    ) -> None:
        self._settings, self._target, self._rank, self._read_secret = settings, target, kubernetes_rank, read_secret
        self._rng = random.Random()
        self._opened: tuple[ConfigSource, ...] = ()
        self.folders: list[FileSource] = []
        self.servers: list[tuple[McpSource, stream.McpStream]] = []
        self.has_kubernetes = False

    def open(self, sources: Sequence[ConfigSource]) -> None:
        """Create the sources in the mesh config. Skip sources with an invalid address, which validation reports."""
        self._opened = tuple(sources)
        valid = [(source, address) for source in sources if (address := _parse_address(source)) is not None]
        schemes = [address.scheme for _, address in valid]
        self.has_kubernetes = "k8s" in schemes
        first = self._rank - RANK_STEP * (schemes.index("k8s") if self.has_kubernetes else 0)
        for position, (source, address) in enumerate(valid):
            rank = first + RANK_STEP * position
            if address.scheme == "fs":
                self.folders.append(self._folder(address.place, rank))
            elif address.scheme == "xds":
                self.servers.append(self._server(source, address.place, rank))

    async def load(self) -> int:
        """Read all sources except the API server. Return the number of files.

        There is no timeout for servers, because configuration such as security policies must not be missing.
        """
        for _, mcp_stream in self.servers:
            await mcp_stream.start()
        try:
            count = sum([await asyncio.to_thread(folder.load_initial) for folder in self.folders])
        except OSError as error:
            raise StartError(f"configSources: {error.filename}: {error.strerror or error}") from error
        for source, _ in self.servers:
            if not source.synced.is_set():
                _log.info("waiting for %s", source.name)
            await source.synced.wait()
        return count

    async def watch(self) -> None:
        """Start watching folders. Servers have been watched since `load`."""
        for folder in self.folders:
            await folder.start()

    async def stop(self) -> None:
        """Stop watching."""
        for folder in self.folders:
            await folder.stop()
        for _, mcp_stream in self.servers:
            await mcp_stream.stop()

    def on_mesh_config(self, mesh: MeshConfig) -> None:
        """Report a changed list of config sources, because the change takes effect only after a restart."""
        is_changed = mesh.config_sources != self._opened
        message = "config sources have changed; the change takes effect after a restart"
        problem = Problem(code="needs-restart", path="configSources", message=message, severity=Severity.WARNING)
        self._target.problems.replace(("configSources", ""), (problem,) if is_changed else ())

    def _folder(self, path: str, rank: int) -> FileSource:
        ingest, target = self._settings.ingest, self._target
        return FileSource(
            path,
            target.batch,
            target.ledger.source(rank, path),
            self._origin(),
            target.catalogue,
            ingest.largest_file,
            ingest.state_dir,
            target.parser,
        )

    def _server(self, source: ConfigSource, place: str, rank: int) -> tuple[McpSource, stream.McpStream]:
        """Return the receiver of a server's objects, and the stream to the server."""
        target, tls = self._target, source.tls_settings
        kinds = [kind for kind in target.catalogue if kind.is_over_xds]
        objects = McpSource(f"xds://{place}", kinds, target.batch, target.ledger, rank, self._origin(), target.problems)
        server = stream.McpEndpoint(place, lambda: server_credentials(tls, self._read_secret), server_name(tls))
        return objects, stream.McpStream(
            server, self._client(), objects.types, objects.receive, objects.told, BACKOFF, self._rng
        )

    def _client(self) -> stream.McpClient:
        registry, pod = self._settings.mesh.registry, self._settings.process.pod_name or "pyistiod"
        node = f"sidecar~127.0.0.1~{pod}.{registry.namespace}~{registry.namespace}.svc.{registry.domain}"
        return stream.McpClient(node, registry.namespace, self._settings.ingest.revision)

    def _origin(self) -> DocumentOrigin:
        return DocumentOrigin(self._settings.mesh.registry.cluster_id, True, self._settings.ingest.revision)


def _parse_address(source: ConfigSource) -> SourceAddress | None:
    try:
        return parse_source_address(source.address)
    except AddressFault:
        return None


async def server_credentials(
    tls: ClientTLSSettings | None, read_secret: ReadSecret | None
) -> grpc.ChannelCredentials | None:
    """Return the channel credentials for a server, or None for plaintext. Files and Secrets are read on each call.

    Raise CannotConnectError if a file or Secret is missing.
    """
    if tls is None or tls.mode == "DISABLE":
        return None
    if tls.credential_name:
        roots = await _read_secret_roots(tls.credential_name, read_secret)
    else:
        roots = _read_file(tls.ca_certificates)
    if tls.mode == "MUTUAL" and tls.client_certificate:
        return grpc.ssl_channel_credentials(roots, _read_file(tls.private_key), _read_file(tls.client_certificate))
    return grpc.ssl_channel_credentials(roots)


def server_name(tls: ClientTLSSettings | None) -> str:
    """Return the name to verify in the server's certificate, or "" for the host of its address."""
    if tls is None or tls.mode == "DISABLE":
        return ""
    return tls.subject_alt_names[0] if tls.subject_alt_names else tls.sni


async def _read_secret_roots(name: str, read_secret: ReadSecret | None) -> bytes:
    try:
        data = await read_secret(name) if read_secret is not None else {}
    except SecretError as error:
        raise stream.CannotConnectError(str(error)) from error
    for key in _ROOT_KEYS:
        if data.get(key):
            return data[key]
    raise stream.CannotConnectError(f"there is no Secret {name} with {' or '.join(_ROOT_KEYS)}")


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise stream.CannotConnectError(f"{path}: {error.strerror or error}") from error
