"""The composition root: what a control plane is made of, in which order it starts, and how it ends."""
from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

import uvloop
from aiohttp import web

from pilot.debug.application import add_debug, application, not_found
from pilot.debug.sources import Sources
from pilot.derive import UNSET, Node
from pilot.ingest.batch import Batch, Commit, Timer
from pilot.ingest.decode import Origin
from pilot.ingest.events import count_events, count_updates, push_reasons
from pilot.ingest.file_source import FileSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.mesh_files import MeshFiles
from pilot.ingest.problems import ProblemStore, log_problem
from pilot.lib.flags import FlagError
from pilot.lib.log import scope
from pilot.lib.metrics import Metrics
from pilot.model.inputs import Mesh
from pilot.model.problem import Problem, Severity
from pilot.model.views.services import service_refs
from pilot.serve.address import Address, parse_address
from pilot.serve.admission import Admission
from pilot.serve.ads import Ads, make_server
from pilot.serve.discovery import Discovery
from pilot.serve.drain import drain
from pilot.serve.http import add_ready, listen
from pilot.serve.pusher import Pusher
from pilot.settings import Settings
from pilot.translate.profile import plan

SWEEP_SECONDS = 10.0
_log = scope("default")


class StartError(Exception):
    """The process cannot do what it was told; the text is for the user."""


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. StartError or FlagError where that cannot be."""
    uvloop.run(_run(settings))


async def _run(settings: Settings) -> None:
    await ControlPlane(settings).run()


class ControlPlane:
    """Everything that one process is, by its settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.http, self.grpc, self.monitoring = _addresses(settings)
        aliases = _aliases(settings.serve.cluster_aliases)
        if settings.ingest.registries != ("Kubernetes",):
            raise StartError(f"--registries: {','.join(settings.ingest.registries)!r} is not known, only Kubernetes is")
        if not settings.ingest.config_dir:
            raise StartError("--configDir: say which folder to read the configuration from")
        self.metrics = Metrics()
        self.db = Mesh(settings.mesh)
        self.db.on_failure = self._failed
        self.problems = ProblemStore(self._noticed)
        self.clock = _Clock()
        self.batch = Batch(self.db, self.clock, settings.ingest.debounce_after, settings.ingest.debounce_max, self._committed)
        self.mesh_files = MeshFiles(settings.ingest.mesh_config, settings.ingest.networks_config, self.batch, self.problems)
        origin = Origin(settings.mesh.registry.cluster_id, revision=settings.ingest.revision)
        self.ledger = Ledger(self.problems)
        files = self.ledger.source(0, settings.ingest.config_dir)
        limit = settings.ingest.largest_file
        self.files = FileSource(settings.ingest.config_dir, self.batch, files, origin, self.db.catalogue, limit)
        self.discovery = Discovery(self.db, self.metrics, plan)
        self.pusher = Pusher(self.discovery, self.metrics, settings.serve.bytes_in_flight)
        ads = Ads(self.discovery, self.pusher, self.metrics, Admission(settings.serve.stream_rate), aliases)
        self.server = make_server(settings.serve, ads.handlers())
        self.services = self.db.watch(service_refs)
        self.ready = False

    async def run(self) -> None:
        """Start, serve until SIGTERM or SIGINT, and end. StartError where something that is needed is not to be had."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with contextlib.AsyncExitStack() as stack:
            await self._listen_http(stack)
            await self._load()
            for source in (self.mesh_files, self.files):
                await source.start()
                stack.push_async_callback(source.stop)
            sweeping = asyncio.create_task(self._sweep())
            stack.callback(sweeping.cancel)
            await self._listen_grpc()
            self.ready = True
            _log.info("ready: %d objects", sum(len(table) for table in self.db.tables.values()))
            await stop.wait()
            self.ready = False
            _log.info("ending: open streams get %s", self.settings.process.shutdown_duration)
            await drain(self.server, self.discovery, self.settings.process.shutdown_duration.seconds)

    # -- start ---------------------------------------------------------------------------------------------------------

    async def _listen_http(self, stack: contextlib.AsyncExitStack) -> None:
        """Readiness first of all, so that something answers 503; the debug pages and metrics beside it."""
        sources = Sources(self.db, self.metrics, self.discovery, lambda: self.problems, self.settings.debug)
        main = web.Application(middlewares=[not_found]) if self.monitoring else application(sources)
        add_ready(main, lambda: self.ready)
        if self.monitoring:
            add_debug(main, sources)
        apps = [(main, self.http), (application(sources), self.monitoring)]
        for app, address in apps:
            if address is not None:
                try:
                    runner = await listen(app, address)
                except OSError as error:
                    raise StartError(f"cannot listen on {address}: {error.strerror or error}") from error
                stack.push_async_callback(runner.cleanup)

    async def _load(self) -> None:
        """Read all configuration beside the event loop, which answers /ready meanwhile."""
        started = time.monotonic()
        gc.disable()  # nothing of what is read is garbage
        try:
            self.mesh_files.load_initial()
            count = await asyncio.to_thread(self.files.load_initial)
        except OSError as error:
            raise StartError(f"--configDir: {self.settings.ingest.config_dir}: {error.strerror or error}") from error
        self.clock.arm()
        self.batch.flush()
        gc.freeze()
        gc.enable()
        gc.set_threshold(200_000, 100, 100)
        _log.info("read %d files in %.1f s", count, time.monotonic() - started)

    async def _listen_grpc(self) -> None:
        if self.grpc is None:
            return
        try:
            self.server.add_insecure_port(str(self.grpc))
        except RuntimeError as error:
            raise StartError(f"cannot listen on {self.grpc}: {error}") from error
        await self.server.start()

    # -- while it runs -------------------------------------------------------------------------------------------------

    def _committed(self, commit: Commit) -> None:
        """A batch of changes is in the tables."""
        woken = self.discovery.wake(commit.hit, push_reasons(self.db.catalogue, commit))
        count_updates(self.metrics, self.db.catalogue, commit)
        count_events(self.metrics, self.db.catalogue, commit)
        self.metrics.committed(commit.took)
        self.metrics.debounced(self.clock.time() - commit.first)
        self.db.refresh(self.services)
        self.metrics.counted(0 if self.services.value is UNSET else len(self.services.value), len(self.db.virtual_services))
        _log.info("%d changes, %d proxies concerned", len(commit.edits), woken)

    def _noticed(self, problem: Problem) -> None:
        """A user's mistake that was not there before."""
        log_problem(problem)
        if problem.severity is Severity.ERROR and problem.object.name:
            kind, namespace, name = problem.object
            self.metrics.rejected_config(self.db.catalogue.short_name(kind).lower(), f"{namespace}/{name}" if namespace else name)

    def _failed(self, node: Node, error: Exception) -> None:
        """A bug of ours: what depends on it keeps its last good value."""
        self.metrics.derivation_failed(str(node.fn))
        _log.error("cannot derive %r", node.key, exc_info=error)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.discovery.sweep()
            self.pusher.sweep()


class _Clock:
    """The event loop's clock for the batch. Until `arm` no timer rings: the first load is committed as a whole."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def arm(self) -> None:
        self._loop = asyncio.get_running_loop()

    def time(self) -> float:
        return time.monotonic()

    def call_later(self, delay: float, callback: Callable[[], Any], /) -> Timer:
        return _NoTimer() if self._loop is None else self._loop.call_later(delay, callback)


class _NoTimer:
    def cancel(self) -> None:
        return None


def _addresses(settings: Settings) -> tuple[Address | None, Address | None, Address | None]:
    """Of HTTP, xDS and monitoring."""
    return (
        parse_address(settings.process.http_address, "httpAddr"),
        parse_address(settings.serve.grpc_address, "grpcAddr"),
        parse_address(settings.process.monitoring_address, "monitoringAddr"),
    )


def _aliases(pairs: Iterable[str]) -> dict[str, str]:
    """Cluster by alias. FlagError where one is not alias=cluster, or a cluster has two."""
    aliases: dict[str, str] = {}
    for pair in pairs:
        alias, equals, cluster = pair.partition("=")
        if not (alias and equals and cluster):
            raise FlagError(f"invalid argument for --clusterAliases: {pair!r} is not alias=cluster")
        if cluster in aliases.values():
            raise FlagError(f"invalid argument for --clusterAliases: cluster {cluster!r} has more than one alias")
        aliases[alias] = cluster
    return aliases
