"""The control plane: its parts, their startup order, and shutdown."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import uvloop
from aiohttp import web

from pilot.bootstrap.clusters.access_reviews import SecretAccessReview
from pilot.bootstrap.clusters.api_servers import (
    ApiServers,
    IngestTarget,
    find_credentials,
    mesh_file_paths,
    required_mesh_files,
)
from pilot.bootstrap.clusters.controllers import Controllers
from pilot.bootstrap.config_sources import ConfigSources
from pilot.bootstrap.dashboard_data import DashboardData
from pilot.bootstrap.diagnostics import ControlzPort, HttpIdentities, debug_over_xds, log_stacks
from pilot.bootstrap.fetchers import make_gateway_names, make_key_sets
from pilot.bootstrap.first_load import FirstLoad, PausedClock, refuse_invalid_mesh
from pilot.bootstrap.notices import ChangeReporter, report_failure
from pilot.bootstrap.options import check_names, check_security, check_sources, parse_addresses, parse_aliases
from pilot.bootstrap.part import Part, Parts
from pilot.bootstrap.periodic_jobs import MallocTrimmer, MemoryRelease, PatchMetrics, PeriodicJobs
from pilot.bootstrap.ports import GrpcPort, GrpcServices, HttpPort
from pilot.bootstrap.rollouts import Rollouts, count_delivery
from pilot.bootstrap.security.port_auth import PortAuth
from pilot.bootstrap.security.process_security import Security, SecurityContext, TrustRootPublisher
from pilot.bootstrap.security.secure_port import SecurePort
from pilot.bootstrap.stall_reports import build_loop_watchdog
from pilot.bootstrap.traces import start_export
from pilot.bootstrap.webhooks import WebhookParts
from pilot.config.catalogue import CATALOGUE, Catalogue
from pilot.config.group_kind import MULTICLUSTER
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.controllers.registration_in_memory import InMemoryRegistration, InMemoryRegistrationOptions
from pilot.debug.application import add_debug, application, not_found
from pilot.debug.health import HealthChecker
from pilot.debug.history import PERIOD
from pilot.debug.sources import Sources
from pilot.derive import Node
from pilot.envoy.plans.gateway_problems import ROUTERS
from pilot.envoy.plans.patch_problems import ENVOY_FILTERS
from pilot.envoy.plans.policy_problems import POLICIES_OF_PROXIES
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.ingest.address_memory import AddressMemory
from pilot.ingest.batch import Batch, Clock, Commit, Timer
from pilot.ingest.checking import Checking
from pilot.ingest.cluster.watched_kinds import read_kinds
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.files.chunk_parser import ChunkParser, build_workers
from pilot.ingest.files.config_folders import ConfigFolder, parse_config_folders
from pilot.ingest.files.field_lines import find_lines
from pilot.ingest.files.file_source import FileSource
from pilot.ingest.files.mesh_files import MeshFiles
from pilot.ingest.files.object_text import read_text
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.kube.api_client import ApiClient
from pilot.lib.build_info import build_info
from pilot.lib.event_loop import EventLoop
from pilot.lib.logging.log import scope, watch_drops
from pilot.lib.malloc import find_trim
from pilot.lib.metrics.metrics import CHANGES, PUSHES, Metrics
from pilot.lib.xds_types import SECRET
from pilot.mesh.analysis.listed import CHECKS
from pilot.mesh.tables.clock import NOW
from pilot.mesh.tables.database import EVERY_ACCOUNT, MESH_CONFIG, Mesh
from pilot.settings import Settings
from pilot.xds.admission import (
    Admission,
    CheckObjectAccess,
    allow_objects,
    allow_objects_to_namespace,
    stream_limits,
    stream_rate,
)
from pilot.xds.ads import Ads, AdsOptions
from pilot.xds.caller_budgets import CallerBudgets, caller_limits
from pilot.xds.nack_recorder import NackRecorder
from pilot.xds.net.http import add_ready
from pilot.xds.net.listen_address import Address
from pilot.xds.push.discovery import Discovery, log_outcome
from pilot.xds.push.event_progress import EventOutcome
from pilot.xds.push.pusher import Pusher
from pilot.xds.push.write_limiter import write_limits
from pilot.xds.secret_access import SecretAccess
from pilot.xds.server import make_server
from pilot.xds.workload_registration import NoRegistration, WorkloadRegistration

KUBERNETES_RANK = 10_000
"""Rank of the API server.

Folders from flags take precedence over it. Sources in the mesh config have a rank before or after it.
"""
REGISTERED_RANK = 1_000_000
"""Rank of workloads that are registered in memory. Every other source takes precedence."""
SWEEP_SECONDS = 10.0
CLOCK_SECONDS = 300.0
TRIM_SECONDS = 60.0
RELEASE_SECONDS = 1.0
HEALTH_SECONDS = 10.0
SWITCH_SECONDS = 0.001
"""Interval in seconds at which Python switches threads, short so that file readers do not block the event loop."""
_log = scope("default")


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raise StartError or FlagError if startup fails."""
    sys.setswitchinterval(SWITCH_SECONDS)
    uvloop.run(_run_until_signal(settings), loop_factory=EventLoop)


async def _run_until_signal(settings: Settings) -> None:
    plane = ControlPlane(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _end, plane, number)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, log_stacks)
    await plane.run()


def _end(plane: ControlPlane, number: int) -> None:
    """End a control plane after a signal. A second SIGINT (Ctrl-C) ends the process without draining streams."""
    if plane.is_ending and number == signal.SIGINT:
        _log.warning("interrupted twice: exiting without waiting for open streams")
        logging.shutdown()
        os._exit(128 + number)
    plane.end()


class ControlPlane:
    """A control plane. `clock` schedules batches and periodic jobs."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.addresses = parse_addresses(settings)
        check_names(settings.mesh.registry, settings.debug)
        check_security(settings.secure_port, settings.authentication)
        check_sources(settings.ingest)
        credentials = find_credentials(settings.kubernetes, bool(settings.ingest.config_dirs))
        folders = parse_config_folders(
            settings.ingest.config_dirs, settings.mesh.registry.cluster_id, needed=credentials is None
        )
        self._commit_listeners: list[Callable[[Commit], None]] = []
        self._stream_commit_listeners: list[Callable[[Iterable[Node]], None]] = []

        self.metrics = Metrics()
        watch_drops(self.metrics.log_lines_dropped)
        self._loop_watchdog = build_loop_watchdog(self.metrics)
        kubernetes = settings.kubernetes
        self.db = Mesh(
            settings.mesh,
            CATALOGUE.in_group(MULTICLUSTER, kubernetes.mcs_group, kubernetes.mcs_version),
            environment=os.environ,
            on_failure=functools.partial(report_failure, self.metrics),
        )
        self.db.commit([(self.db.clock, NOW, time.time())])
        ignored = (
            *kubernetes.ignored,
            *(() if settings.mesh.registry.mcs_discovery else (f"*.{kubernetes.mcs_group}",)),
        )
        self._catalogue = Catalogue(read_kinds(self.db.catalogue, ignored, kubernetes.included))
        self._export = start_export(settings.traces, build_info().version)
        self._traces = self._export.traces if self._export is not None else None
        self.discovery = Discovery(
            self.db,
            self.metrics,
            proxy_plan,
            commit_listeners=self._stream_commit_listeners,
            on_outcome=self._on_outcome,
            counts_cache=settings.debug.cache_metrics,
        )
        self._aliases = parse_aliases(settings.serve.cluster_aliases)
        self._admission, self._budgets = (
            Admission(stream_rate(settings.serve.stream_rate)),
            CallerBudgets(caller_limits(settings.serve)),
        )
        self._clock = PausedClock(clock or _LoopClock())
        self._reporter = ChangeReporter(
            self.db, self.discovery, self.metrics, self._clock, self._traces, self._on_change
        )
        self.problems = ProblemStore(self._reporter.on_problem, self.metrics.config_problems)
        self._health = HealthChecker(self.db, self.discovery, self.problems, self.metrics.health)
        self.nacks = NackRecorder(self.db, self.discovery, self._clock)
        self._checking = Checking(
            self.db, self._clock, self.problems, (*CHECKS, ROUTERS, ENVOY_FILTERS, POLICIES_OF_PROXIES)
        )
        ingest = settings.ingest
        self._batch = Batch(
            self.db,
            self._clock,
            ingest.debounce_after,
            ingest.debounce_max,
            self._on_commit,
            ingest.debounce_endpoints,
            lambda: self.pusher.is_idle,
        )
        self._count_internals(len({folder.cluster for folder in folders} - {settings.mesh.registry.cluster_id}))
        self._key_sets = make_key_sets(settings, self.db, self._batch, self.problems, self.metrics)
        self._address_memory = AddressMemory(self.db, self._batch, ingest.state_dir)
        self._gateway_names = make_gateway_names(settings, self.db, self._batch, self.problems)
        self.ports: dict[str, HttpPort | GrpcPort | SecurePort] = {}

        ledger = Ledger(self.problems)
        self._dashboard_data = DashboardData(self._catalogue, ledger, self.discovery, self.metrics)
        changes = self._dashboard_data.changes
        self.pusher = Pusher(
            self.discovery,
            self.metrics,
            write_limits(settings.serve),
            changes.on_written,
            changes.on_derivations,
            self._traces.on_push if self._traces is not None else None,
        )
        local_cluster = settings.mesh.registry.cluster_id
        self._rollouts = Rollouts(self.db, ledger, self._batch, local_cluster)
        self._parse_workers = build_workers()
        self._parser = ChunkParser(self._parse_workers)
        self.files = tuple(self._file_source(ledger, rank, folder) for rank, folder in enumerate(folders))
        target = IngestTarget(self.db, self._catalogue, self._batch, ledger, self.problems, self.metrics, self._parser)
        run_remote = self._run_remote_controllers if settings.kubernetes.external else None
        self.api_servers = (
            ApiServers(credentials, settings, target, KUBERNETES_RANK, self._aliases, run_remote)
            if credentials is not None
            else None
        )
        self._config_sources = ConfigSources(
            settings, target, KUBERNETES_RANK, self.api_servers.read_secret if self.api_servers is not None else None
        )
        self.security = Security(settings, self._security_context())
        self.webhooks = WebhookParts(
            settings, self._mesh_config, self.db, self.metrics, self.security.build_certificate("http/1.1")
        )
        self._controllers = (
            Controllers(
                self.api_servers,
                settings,
                self.db,
                self.security.server_identity,
                self.webhooks,
                lambda ref: count_delivery(self._sources, ref),
            )
            if self.api_servers is not None
            else None
        )
        self._in_memory_registration = self._build_in_memory_registration(ledger)
        self._secret_access = self._build_secret_access({folder.cluster for folder in folders})
        self._add_commit_listeners()
        self.parts = Parts(tuple(self._build_parts()))
        self._end = asyncio.Event()

    # -- life cycle ----------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Return whether the control plane can serve proxies: all parts have started, and shutdown has not begun."""
        return self.parts.ready

    @property
    def is_ending(self) -> bool:
        """Return whether `end` has been called."""
        return self._end.is_set()

    def end(self) -> None:
        """Make `run` stop all parts and return."""
        self._end.set()

    async def run(self) -> None:
        """Start, run until `end` is called, and stop. Raise StartError if startup fails."""
        if await self._start():
            _log.info("ready: %d objects", sum(len(table) for table in self.db.tables.values()))
            await self._end.wait()
            await self.parts.stop()

    async def _start(self) -> bool:
        """Start all parts. If `end` is called meanwhile, stop them again and return False."""
        starting, ending = asyncio.create_task(self.parts.start()), asyncio.create_task(self._end.wait())
        await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,))
        ending.cancel()
        if starting.cancelled():
            return False
        await starting
        return True

    # -- events --------------------------------------------------------------------------------------------------------

    def _add_commit_listeners(self) -> None:
        """Register the parts that handle commits, in the order in which they are called."""
        self._commit_listeners += [
            lambda commit: self._checking.reached(commit.hit),
            lambda commit: self._key_sets.reached(commit.hit),
            lambda commit: self._address_memory.reached(commit.hit),
        ]
        if (gateway_names := self._gateway_names) is not None:
            self._commit_listeners.append(lambda commit: gateway_names.reached(commit.hit))
        self._commit_listeners += [self._reporter.on_commit, self._check_mesh_config]
        self._stream_commit_listeners.append(self._checking.reached)
        if self._controllers is not None:
            self._commit_listeners.append(self._controllers.on_commit)
            self._stream_commit_listeners.append(self._controllers.on_stream_commit)
        self._commit_listeners.append(self.webhooks.on_commit)

    def _on_commit(self, commit: Commit) -> None:
        """Handle a committed batch of changes."""
        for listener in self._commit_listeners:
            listener(commit)

    def _check_mesh_config(self, commit: Commit) -> None:
        """Handle a commit that changes the mesh config."""
        if any(table == MESH_CONFIG for table, _, _ in commit.edits):
            self._config_sources.on_mesh_config(self._mesh_config())
            self.security.on_mesh_config(self._mesh_config())

    def _on_change(self, event: int, commit: Commit, proxies: int) -> None:
        """Handle a committed batch of changes that affects some proxies."""
        self._dashboard_data.on_change(event, commit, proxies)
        self._rollouts.on_change(event, commit)

    def _on_outcome(self, outcome: EventOutcome) -> None:
        """Handle the outcome of an event."""
        log_outcome(outcome)
        self._dashboard_data.changes.finish(outcome.event, outcome)
        if self._traces is not None:
            self._traces.on_outcome(outcome)

    async def _run_remote_controllers(self, cluster: str, client: ApiClient) -> None:
        if self._controllers is not None:
            await self._controllers.run_remote(cluster, client)

    def _mesh_config(self) -> MeshConfig:
        """Return the current mesh config."""
        row = self.db.mesh.peek("mesh")
        return row if isinstance(row, MeshConfig) else MeshConfig()

    # -- construction --------------------------------------------------------------------------------------------------

    def _count_internals(self, remote_clusters: int) -> None:
        """Register the metrics whose values are computed when they are scraped."""
        self.metrics.count_nodes(lambda: len(self.db))
        self.metrics.clusters(1, remote_clusters)
        if self.settings.debug.cache_metrics:
            self.metrics.count_cache(
                self.discovery.count_cached, self.db.count_inputs, lambda: self.discovery.cache_reads
            )
        if self.settings.debug.queue_metrics:
            self.metrics.count_queues({CHANGES: lambda: len(self._batch), PUSHES: self.discovery.count_waiting})

    def _security_context(self) -> SecurityContext:
        servers = self.api_servers
        if servers is None:
            return SecurityContext(self._mesh_config, self._aliases, self.metrics, self.db)
        return SecurityContext(
            self._mesh_config,
            self._aliases,
            self.metrics,
            self.db,
            servers.reviewers,
            servers.root_store,
            servers.read_secret,
            servers.caller_client,
        )

    def _file_source(self, ledger: Ledger, rank: int, folder: ConfigFolder) -> FileSource:
        """Return the source for a folder. If several folders of a cluster declare an object, the first one wins."""
        ingest, local_cluster = self.settings.ingest, self.settings.mesh.registry.cluster_id
        origin = DocumentOrigin(folder.cluster, folder.cluster == local_cluster, ingest.revision)
        source_ledger = ledger.source(rank, folder.path)
        return FileSource(
            folder.path,
            self._batch,
            source_ledger,
            origin,
            self._catalogue,
            ingest.largest_file,
            ingest.state_dir,
            self._parser,
        )

    def _build_in_memory_registration(self, ledger: Ledger) -> InMemoryRegistration | None:
        """Return the registration of workloads in this process.

        Return None if workloads are registered in the cluster or cannot register.
        """
        kubernetes, registry = self.settings.kubernetes, self.settings.mesh.registry
        is_in_cluster = self._controllers is not None and self._controllers.registration is not None
        if not kubernetes.registration or is_in_cluster:
            return None
        options = InMemoryRegistrationOptions(kubernetes.registration_grace.seconds, kubernetes.registration_identity)
        source_ledger = ledger.source(REGISTERED_RANK, "registered workloads")
        return InMemoryRegistration(
            self.db, self._batch, source_ledger, DocumentOrigin(registry.cluster_id), options, self.metrics.kubernetes
        )

    @property
    def _registration(self) -> WorkloadRegistration:
        if self._controllers is not None and self._controllers.registration is not None:
            return self._controllers.registration
        return self._in_memory_registration or NoRegistration()

    def _build_secret_access(self, file_clusters: set[str]) -> SecretAccess | None:
        """Return the check of whether an account may read Secrets, which API servers review.

        Return None without an API server. Every account may then read the Secrets in its namespace.
        """
        if self.api_servers is None:
            self.db.commit([(self.db.secret_access, EVERY_ACCOUNT, True)])
            return None
        local_cluster, servers = self.settings.mesh.registry.cluster_id, self.api_servers
        review = SecretAccessReview(servers.caller_client, local_cluster, file_clusters, servers.remote.clusters)
        return SecretAccess(self.discovery, review)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _build_parts(self) -> Iterator[Part]:
        """Yield the parts in startup order.

        The HTTP ports are first, so that /ready returns 503 during startup. Configuration is watched only after proxies
        can connect. Parts stop in reverse order, so configuration does not change while streams are drained.
        """
        if self._export is not None:
            yield Part("trace export", stop=functools.partial(asyncio.to_thread, self._export.stop))
        yield Part("the watchdog of the event loop", self._loop_watchdog.start, self._loop_watchdog.stop)
        yield from self._build_http_ports()
        if self.addresses.controlz is not None:
            yield self._port("ControlZ", ControlzPort(self.addresses.controlz, self.metrics, self.end))
        mesh_files = MeshFiles(
            *mesh_file_paths(self.settings), self._batch, self.problems, required_mesh_files(self.settings)
        )
        refuse = functools.partial(refuse_invalid_mesh, self.problems)
        first_load = FirstLoad(
            mesh_files,
            self.files,
            self.api_servers,
            self._config_sources,
            self._batch,
            self._clock,
            on_mesh=(lambda: None) if self.settings.ingest.allow_invalid_mesh_config else refuse,
        )
        yield Part("allocated addresses", self._address_memory.start, self._address_memory.stop)
        yield Part("the first load", first_load.start, self._config_sources.stop)
        yield Part("the issuers' key sets", self._key_sets.start, self._key_sets.stop)
        if self._gateway_names is not None:
            yield Part("the host names of gateways", self._gateway_names.start, self._gateway_names.stop)
        yield from self._build_periodic_jobs()
        if self._secret_access is not None:
            yield Part("reviews of access to Secrets", stop=self._secret_access.stop)
        yield from self.security.parts()
        if self.settings.authority.multiple_roots:
            publisher = TrustRootPublisher(self.security.authority, self.security.external_signer, self.discovery)
            yield Part("the publisher of trust roots", publisher.start)
        for services in self._grpc_services():
            if services.address is not None:
                yield self._port(services.name, self._grpc_port(services))
        yield from self.webhooks.parts()
        if self.addresses.webhooks is not None:
            yield self._port("webhooks", self.webhooks.build_port(self.addresses.webhooks, lambda: self.ready))
        if (registration := self._in_memory_registration) is not None:
            yield Part("workload registration", registration.start, registration.stop)
        yield Part("the parsers of large files", stop=self._parse_workers.stop)
        yield Part("the watch of the mesh config", mesh_files.start, mesh_files.stop)
        for files in self.files:
            yield Part(f"the watch of {files.folder}", files.start, files.stop)
        yield Part("the watch of config sources", self._config_sources.watch)
        if self.api_servers is not None and self._controllers is not None:
            yield Part("the watch of API servers", stop=self.api_servers.stop)
            yield Part("the controllers", self._controllers.start, self._controllers.stop)
            yield Part("the stored objects that wait", self.api_servers.read_waiting)

    def _build_periodic_jobs(self) -> Iterator[Part]:
        """Yield the parts that run jobs periodically."""
        secret_access = (self._secret_access.sweep,) if self._secret_access is not None else ()
        sweeps = PeriodicJobs(
            self._clock,
            SWEEP_SECONDS,
            (self.discovery.sweep_in_steps, self.nacks.sweep, self.pusher.sweep, *secret_access),
        )
        yield Part("sweeps", sweeps.start, sweeps.stop)
        ticks = PeriodicJobs(self._clock, CLOCK_SECONDS, (self._set_clock,))
        yield Part("the clock of expiry checks", ticks.start, ticks.stop)
        patches = (PatchMetrics(self.db, self.metrics).check,) if self.settings.debug.patch_metrics else ()
        health = PeriodicJobs(self._clock, HEALTH_SECONDS, (self._health.schedule, *patches))
        yield Part("health checks of the mesh", stop=self._health.stop)
        yield Part("the schedule of health checks", health.start, health.stop)
        history = PeriodicJobs(self._clock, PERIOD, (self._dashboard_data.sample,))
        yield Part("the history for the dashboard", history.start, history.stop)
        trimmer = MallocTrimmer(find_trim())
        release = MemoryRelease(self.discovery.free_many_in_steps, trimmer)
        releases = PeriodicJobs(self._clock, RELEASE_SECONDS, (release,))
        yield Part("the release of many unused values", releases.start, releases.stop)
        trims = PeriodicJobs(self._clock, TRIM_SECONDS, (trimmer,))
        yield Part("memory trimming", trims.start, trims.stop)

    def _set_clock(self) -> None:
        """Write the time, by which checks decide whether certificates have expired."""
        self.discovery.commit([(self.db.clock, NOW, time.time())], {})

    # -- gRPC ports ----------------------------------------------------------------------------------------------------

    def _grpc_services(self) -> tuple[GrpcServices, ...]:
        """Return the services of each gRPC port. The ports differ in authentication."""
        addresses, security = self.addresses, self.security
        return (
            self._services("xDS", addresses.grpc, security.plain),
            self._services("secure xDS", addresses.secure, security.secure),
        )

    def _services(self, name: str, address: Address | None, auth: PortAuth) -> GrpcServices:
        """Return the services of a port. All ports share the proxies, the admission of streams, the budgets of callers
        and the write limits."""
        options = AdsOptions(
            self._admission,
            self._aliases,
            stream_limits(self.settings.serve),
            auth.identify_peer,
            auth.authenticate,
            self.security.authorize,
            debug_over_xds(self._sources),
            self._object_access(),
            self._registration,
            self.nacks,
            self._request_listeners(),
            self._budgets,
        )
        ads = Ads(self.discovery, self.pusher, self.metrics, options)
        services = (ads, self.security.certificate_service(auth))
        handlers = tuple(service.handlers() for service in services if service is not None)
        return GrpcServices(name, address, handlers, ads.connections)

    def _request_listeners(self) -> dict[str, Callable[..., None]]:
        return {SECRET: self._secret_access.on_request} if self._secret_access is not None else {}

    def _object_access(self) -> CheckObjectAccess:
        """Return the check of whether a caller may read configuration objects."""
        return (
            allow_objects_to_namespace(lambda: self._mesh_config().root_namespace)
            if self.settings.authentication.objects_for_root
            else allow_objects
        )

    def _grpc_port(self, services: GrpcServices) -> GrpcPort | SecurePort:
        if services.address is self.addresses.secure:
            return self.security.build_port(services)
        assert services.address is not None
        server = make_server(self.settings.serve, services.handlers)
        return GrpcPort(server, services.address, services.connections, self.settings.process.shutdown_duration)

    # -- HTTP ports ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _sources(self) -> Sources:
        """Return the data for the debug pages, which are available over HTTP and over xDS."""
        identify = HttpIdentities(self.security.secure.authenticate)
        problems, debug, pod = (lambda: self.problems), self.settings.debug, self.settings.process.pod_name
        return Sources(
            self.db,
            self.metrics,
            self.discovery,
            problems,
            debug,
            identify,
            pod,
            templates=lambda: self.webhooks.templates,
            health=lambda: self._health.findings,
            worst_stall=self._loop_watchdog.worst,
            changes=self._dashboard_data.changes,
            history=self._dashboard_data.history,
            document_of=lambda ref: self._dashboard_data.document_of(ref, self.settings.mesh.registry.cluster_id),
            find_object=self._rollouts.find,
            find_lines=find_lines,
            read_text=read_text,
        )

    def _build_http_ports(self) -> Iterator[Part]:
        """Yield the port for readiness and the port for debug pages and metrics. They may be the same port."""
        sources, monitoring = self._sources, self.addresses.monitoring
        main = web.Application(middlewares=[not_found]) if monitoring else application(sources)
        add_ready(main, lambda: self.ready)
        if monitoring:
            add_debug(main, sources)
        if self.addresses.webhooks is None:
            self.webhooks.add_to(main)
        for name, app, address in (
            ("HTTP", main, self.addresses.http),
            ("monitoring", application(sources), monitoring),
        ):
            if address is not None:
                takes_bodies = app is main and self.addresses.webhooks is None
                yield self._port(name, HttpPort(app, address, takes_bodies=takes_bodies))

    def _port(self, name: str, port: HttpPort | GrpcPort | SecurePort) -> Part:
        self.ports[name] = port
        return Part(f"the {name} port", port.start, port.stop)


class _LoopClock:
    """The clock of the running event loop."""

    def time(self) -> float:
        return time.monotonic()

    def call_later(self, delay: float, callback: Callable[[], Any], /) -> Timer:
        return asyncio.get_running_loop().call_later(delay, callback)
