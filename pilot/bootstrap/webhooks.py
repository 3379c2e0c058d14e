"""The webhooks of a process: their port, its certificate, and the injector's configuration."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from aiohttp import web

from pilot.bootstrap.part import Part
from pilot.bootstrap.ports import HttpPort
from pilot.bootstrap.security.port_certificate import PortCertificate
from pilot.config.kinds.istio import PROXY_CONFIG
from pilot.config.kinds.kubernetes import CONFIG_MAP, NAMESPACE, NODE
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.object import ObjectKey, RegistryKey, age
from pilot.debug.slices import collect_present
from pilot.ingest.batch import Commit
from pilot.lib.flags import FlagError
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.workers.pool import WorkerPool
from pilot.mesh.tables.database import Mesh
from pilot.settings import Settings
from pilot.xds.net.http import add_ready
from pilot.xds.net.listen_address import Address
from webhook.inject.openshift import proxy_ids
from webhook.inject.proxy_config import ProxyConfigObject
from webhook.inject.request import PROXY_ID
from webhook.server.application import Webhooks as WebhookApplication
from webhook.server.config_folder import InjectorConfigFolder
from webhook.server.injector import InjectionContext, Injector, Labels
from webhook.server.reviewers import PROGRAM, Reviewers

MIN_NATIVE_VERSION = (1, 33)
_VERSION = re.compile(r"v?(\d+)\.(\d+)")
_MODES = {"true": True, "false": False, "auto": None}


class WebhookParts:
    """The webhooks that API servers call. `certificate` is the certificate of their port.

    Raise FlagError if a setting is invalid.
    """

    def __init__(
        self,
        settings: Settings,
        mesh: Callable[[], MeshConfig],
        db: Mesh,
        metrics: Metrics,
        certificate: PortCertificate,
    ) -> None:
        self._settings, self._db, self._certificate = settings, db, certificate
        mode = settings.webhook.native_sidecars.lower()
        if mode not in _MODES:
            raise FlagError(f"ENABLE_NATIVE_SIDECARS: {mode!r} is not one of {', '.join(_MODES)}")
        if settings.webhook.client_roots_file and not settings.webhook.address:
            raise FlagError("PILOT_WEBHOOK_CLIENT_CA_FILE requires --httpsAddr: --httpAddr is not encrypted")
        self._native_mode = _MODES[mode]
        openshift = settings.webhook.platform == "openshift"
        self.context = InjectionContext(
            mesh,
            self._is_native,
            proxy_configs=self.proxy_configs,
            proxy_ids=self._proxy_ids if openshift else lambda _: (PROXY_ID, PROXY_ID),
            resets_users=openshift,
            revision=settings.ingest.revision,
            compliance_policy=settings.mesh.tls.compliance_policy,
        )
        self.injector = Injector(self.context) if settings.webhook.inject else None
        self._folder = (
            InjectorConfigFolder(settings.webhook.folder, self.injector) if self.injector is not None else None
        )
        self._workers = WorkerPool(PROGRAM)
        self.reviewers = Reviewers(self.injector, self._workers)
        self._application = WebhookApplication(self.injector, self.reviewers, metrics)
        self._revision = settings.ingest.revision
        name = (
            f"istio-sidecar-injector-{self._revision}"
            if self._revision not in ("", "default")
            else "istio-sidecar-injector"
        )
        self._key = RegistryKey(settings.mesh.registry.cluster_id, settings.mesh.registry.namespace, name)
        self._kubelet_versions: dict[str, dict[str, str]] = {}
        self._ordered_proxy_configs: dict[str, list[ProxyConfigObject]] = {}
        self._proxy_config_changes = 0
        self._port: HttpPort | None = None
        self._loading: asyncio.Task[None] | None = None

    @property
    def templates(self) -> Mapping[str, str] | None:
        """Return the current injection templates, or None if injection is disabled."""
        config = self.injector.config if self.injector is not None else None
        return None if config is None else config.written.templates

    def add_to(self, app: web.Application) -> None:
        """Add the webhooks to an HTTP application."""
        self._application.add_to(app)

    def build_port(self, address: Address, is_ready: Callable[[], bool]) -> HttpPort:
        """Return the TLS port of the webhooks. It does not listen if it has no certificate."""
        app = web.Application(client_max_size=0)
        self.add_to(app)
        add_ready(app, is_ready)
        self._port = HttpPort(app, address, self._tls_context)
        return self._port

    def parts(self) -> Iterator[Part]:
        """Yield the parts that start before the port."""
        if self._settings.webhook.address:
            yield Part("the webhooks' certificate", self._certificate.start, self._certificate.stop)
        yield Part("the injector's configuration", self._start, self._stop)

    def on_commit(self, commit: Commit) -> None:
        """Load the injector's ConfigMap if a commit changed it."""
        for table, key, _ in commit.edits:
            if table == NODE.table_name:
                self._kubelet_versions.clear()
            elif table == PROXY_CONFIG.table_name and isinstance(key, ObjectKey):
                self._proxy_config_changes += 1
                self._ordered_proxy_configs.pop(key.namespace, None)
        if any(table == CONFIG_MAP.table_name and key == self._key for table, key, _ in commit.edits):
            self._loading = asyncio.create_task(self._load_config_map(), name="load the injector's ConfigMap")

    def _tls_context(self) -> ssl.SSLContext | None:
        """Return a context that uses the latest certificate for each handshake, without closing the port."""
        context = self._certificate.context
        if context is not None:
            context.sni_callback = lambda connection, name, _: _use_context(connection, self._certificate.context)
        return context

    async def _start(self) -> None:
        if self._folder is not None and self._folder.exists:
            await self._folder.start()
        else:
            await self._load_config_map()
        if self.templates is not None:
            self._workers.warm()

    async def _stop(self) -> None:
        if self._loading is not None:
            await asyncio.wait((self._loading,))
        if self._folder is not None:
            await self._folder.stop()
        await self._workers.stop()

    async def _load_config_map(self) -> None:
        row: Any = CONFIG_MAP.table(self._db).peek(self._key)
        if self.injector is None or row is None or (self._folder is not None and self._folder.exists):
            return
        data = row.spec.data
        if "config" in data and "values" in data:
            await self.injector.load_in_thread(data["config"], data["values"])

    def _is_native(self, cluster: str, node: str) -> bool:
        """Return whether proxies run as native sidecars.

        Unless this is configured, it depends on whether the node supports them. For an unknown node, all nodes of the
        cluster must support them.
        """
        if self._native_mode is not None:
            return self._native_mode
        if not self._kubelet_versions:
            for key, row in NODE.table(self._db).rows():
                versions_of_cluster = self._kubelet_versions.setdefault(key.cluster, {})
                versions_of_cluster[key.name] = row.spec.status.node_info.kubelet_version
        by_node = self._kubelet_versions.get(cluster, {})
        versions = [by_node[node]] if node in by_node else list(by_node.values())
        return bool(versions) and all(_minor_version(version) >= MIN_NATIVE_VERSION for version in versions)

    async def proxy_configs(self, namespace: str, labels: Labels) -> tuple[ProxyConfigObject, ...]:
        """Return the ProxyConfig objects that may apply to Pods with labels in a namespace, at most four."""
        root = self.context.mesh().root_namespace
        return tuple(
            [
                proxy_config
                for place in dict.fromkeys((root, namespace))
                for proxy_config in _first_of_each(await self._proxy_configs(place), labels)
            ]
        )

    async def _proxy_configs(self, namespace: str) -> list[ProxyConfigObject]:
        """Return the ProxyConfig objects of a namespace, oldest first."""
        if namespace in self._ordered_proxy_configs:
            return self._ordered_proxy_configs[namespace]
        changes = self._proxy_config_changes
        keys = PROXY_CONFIG.keys(self._db, "namespace", namespace)
        rows = await collect_present(PROXY_CONFIG.get(self._db, key) for key in keys)
        ordered = [ProxyConfigObject.from_row(row) for row in sorted(rows, key=age)]
        if changes == self._proxy_config_changes:
            self._ordered_proxy_configs[namespace] = ordered
        return ordered

    def _proxy_ids(self, namespace: str) -> tuple[int, int]:
        key = RegistryKey(self._key.cluster, "", namespace)
        row: Any = NAMESPACE.table(self._db).peek(key)
        return proxy_ids(row.annotations if row is not None else {})


def _first_of_each(objects: list[ProxyConfigObject], labels: Labels) -> Iterator[ProxyConfigObject]:
    """Yield the first object that applies to all Pods, and the first that selects Pods with these labels."""
    for is_selecting in (False, True):
        matches = (o for o in objects if bool(o.selector) is is_selecting and o.selector.items() <= labels.items())
        yield from islice(matches, 1)


def _use_context(connection: Any, context: ssl.SSLContext | None) -> None:
    if context is not None and connection.context is not context:
        connection.context = context


def _minor_version(version: str) -> tuple[int, int]:
    match = _VERSION.match(version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
