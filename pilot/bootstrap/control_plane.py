"""What a control plane is made of, in which order it starts, and how it ends."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import uvloop
from aiohttp import web

from pilot.bootstrap.authentication import Entrance
from pilot.bootstrap.config_sources import ConfigSources
from pilot.bootstrap.controllers import Writers
from pilot.bootstrap.controlz import ControlzPort
from pilot.bootstrap.debug_access import HttpIdentities, over_xds
from pilot.bootstrap.first_load import FirstLoad, HeldClock
from pilot.bootstrap.gateway_names import make_gateway_names
from pilot.bootstrap.key_sets import make_key_sets
from pilot.bootstrap.kubernetes import IngestTarget, Kubernetes, find_credentials, mesh_file_paths
from pilot.bootstrap.malloc_trimmer import GiveBack, find_trim
from pilot.bootstrap.notices import Notices
from pilot.bootstrap.options import check_sources, parse_addresses, parse_aliases
from pilot.bootstrap.part import Part, Parts
from pilot.bootstrap.patch_status import PatchStatus
from pilot.bootstrap.ports import GrpcPort, GrpcServices, HttpPort, SecurePort
from pilot.bootstrap.secret_review import SecretReview
from pilot.bootstrap.security import Security
from pilot.bootstrap.stacks import log_stacks
from pilot.bootstrap.sweeper import Sweeper
from pilot.bootstrap.traces import Traces, start_export
from pilot.bootstrap.trust_root_publisher import ToldRoots
from pilot.bootstrap.webhooks import WebhooksPart
from pilot.config.catalogue import Catalogue
from pilot.config.group_kind import MULTICLUSTER
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.controllers.entries_in_memory import EntriesInMemory, MemoryTerms
from pilot.debug.application import add_debug, application, not_found
from pilot.debug.health import HealthFindings
from pilot.debug.sources import Sources
from pilot.derive import Node
from pilot.envoy.plans import plan
from pilot.envoy.plans.gateway_problems import ROUTERS
from pilot.envoy.plans.patch_problems import ENVOY_FILTERS
from pilot.ingest.batch import Batch, Clock, Commit, Timer
from pilot.ingest.checking import Checking
from pilot.ingest.config_folders import ConfigFolder, parse_config_folders
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.file_source import FileSource
from pilot.ingest.kube_kinds import read_kinds
from pilot.ingest.ledger import Ledger
from pilot.ingest.mesh_files import MeshFiles
from pilot.ingest.problems import ProblemStore
from pilot.lib.build_info import build_info
from pilot.lib.log import scope, watch_drops
from pilot.lib.metrics import CHANGES, PUSHES, Metrics
from pilot.mesh.analysis.listed import CHECKS
from pilot.mesh.tables.database import EVERY_ACCOUNT, MESH_CONFIG, Mesh
from pilot.settings import Settings
from pilot.xds.address import Address
from pilot.xds.admission import Admission
from pilot.xds.ads import Ads
from pilot.xds.discovery import Discovery, log_outcome
from pilot.xds.http import add_ready
from pilot.xds.nacks import Refusals
from pilot.xds.object_access import CheckObjectAccess, anybody_may, only
from pilot.xds.progress import EventOutcome
from pilot.xds.pusher import Pusher
from pilot.xds.secret_access import SecretAccess
from pilot.xds.server import make_server
from pilot.xds.subscription_limits import stream_limits_of
from pilot.xds.write_limiter import limits_of

KUBERNETES_RANK = 10_000
"""Rank of what the API server has: folders of flags come before it, sources of the mesh config before or after."""
REGISTERED_RANK = 1_000_000
"""Rank of workloads that register themselves in memory: what users declare comes before it."""
SWEEP_SECONDS = 10.0
GIVE_BACK_SECONDS = 60.0
HEALTH_SECONDS = 10.0
SWITCH_SECONDS = 0.001
"""Time after which a thread that reads files lets the event loop run, each time the loop has waited for anything."""
_log = scope("default")


def run(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. StartError or FlagError where that cannot be."""
    sys.setswitchinterval(SWITCH_SECONDS)
    uvloop.run(_run_until_signal(settings))


async def _run_until_signal(settings: Settings) -> None:
    plane = ControlPlane(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, plane.end)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, log_stacks)
    await plane.run()


class ControlPlane:
    """Everything that one process is, by its settings. `clock` is for what is done later: batches and sweeps."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.addresses = parse_addresses(settings)
        check_sources(settings.ingest)
        credentials = find_credentials(settings.kubernetes, bool(settings.ingest.config_dirs))
        folders = parse_config_folders(
            settings.ingest.config_dirs, settings.mesh.registry.cluster_id, needed=credentials is None
        )
        self.metrics = Metrics()
        watch_drops(self.metrics.log_lines_dropped)
        self.db = Mesh(settings.mesh, environment=os.environ)
        ignored = (
            *settings.kubernetes.ignored,
            *(() if settings.mesh.registry.mcs_discovery else (f"*.{MULTICLUSTER}",)),
        )
        self._read = Catalogue(read_kinds(self.db.catalogue, ignored, settings.kubernetes.included))
        self.discovery = Discovery(self.db, self.metrics, plan, on_commit=lambda reached: self._reached(reached))
        self.pusher = Pusher(self.discovery, self.metrics, limits_of(settings.serve))
        self._aliases, self._admission = (
            parse_aliases(settings.serve.cluster_aliases),
            Admission(settings.serve.stream_rate),
        )
        self._clock = HeldClock(clock or _LoopClock())
        self._export = start_export(settings.traces, build_info().version)
        self._notices = Notices(self.db, self.discovery, self.metrics, self._clock, self._follow_changes())
        self.metrics.count_nodes(lambda: len(self.db))
        self.metrics.clusters(1, len({folder.cluster for folder in folders} - {settings.mesh.registry.cluster_id}))
        if settings.debug.cache_metrics:
            self.discovery.counts_cache = True
            self.metrics.count_cache(self.discovery.count_kept, self.db.count_inputs, lambda: self.discovery.reads)
        if settings.debug.queue_metrics:
            self.metrics.count_queues({CHANGES: lambda: len(self._batch), PUSHES: self.discovery.count_waiting})
        self.db.on_failure = self._notices.failed
        self.problems = ProblemStore(self._notices.noticed, self.metrics.config_problems)
        self._health = HealthFindings(self.db, self.discovery, self.problems, self.metrics.health)
        self.refusals = Refusals(self.db, self.discovery, self._clock)
        self._checking = Checking(self.db, self._clock, self.problems, (*CHECKS, ROUTERS, ENVOY_FILTERS))
        waits = settings.ingest
        self._batch = Batch(
            self.db, self._clock, waits.debounce_after, waits.debounce_max, self._committed, waits.debounce_endpoints
        )
        self._key_sets = make_key_sets(settings, self.db, self._batch, self.problems, self.metrics)
        self._gateway_names = make_gateway_names(settings, self.db, self._batch, self.problems)
        self.ports: dict[str, HttpPort | GrpcPort | SecurePort] = {}
        ledger = Ledger(self.problems)
        self.files = tuple(self._file_source(ledger, rank, folder) for rank, folder in enumerate(folders))
        target = IngestTarget(self.db, self._read, self._batch, ledger, self.problems, self.metrics)
        self.kubernetes = (
            Kubernetes(credentials, settings, target, KUBERNETES_RANK, self._aliases)
            if credentials is not None
            else None
        )
        self._config_sources = ConfigSources(
            settings, target, KUBERNETES_RANK, self.kubernetes.read_secret if self.kubernetes is not None else None
        )
        api = self.kubernetes
        asked = (api.reviewers, api.keep_root, api.read_secret, api.client) if api is not None else ()
        self.security = Security(settings, self._mesh_config, self._aliases, self.metrics, self.db, *asked)
        self.webhooks = WebhooksPart(
            settings, self._mesh_config, self.db, self.metrics, self.security.make_certificate("http/1.1")
        )
        self._writers = (
            Writers(self.kubernetes, settings, self.db, self.security.trust, self.webhooks)
            if self.kubernetes is not None
            else None
        )
        self._entries = self._make_entries(ledger)
        if self._writers is not None and self._writers.entries is not None:
            self.discovery.lifecycle = self._writers.entries
        elif self._entries is not None:
            self.discovery.lifecycle = self._entries
        self._secret_access = self._make_secret_access({folder.cluster for folder in folders})
        self.parts = Parts(tuple(self._make_parts()))
        self._end = asyncio.Event()

    def _follow_changes(self) -> Traces | None:
        """Returns what makes traces of changes and is told of what becomes of them; None where nobody wants traces."""
        if self._export is None:
            return None
        traces = self._export.traces
        self.pusher.on_push = traces.pushed

        def tell(outcome: EventOutcome) -> None:
            log_outcome(outcome)
            traces.finished(outcome)

        self.discovery.on_outcome = tell
        return traces

    @property
    def ready(self) -> bool:
        """Returns whether proxies can be served: everything has started, and nothing has begun to end."""
        return self.parts.ready

    def end(self) -> None:
        """Has `run` stop everything and return."""
        self._end.set()

    async def run(self) -> None:
        """Starts, serves until `end`, and stops. StartError where something that is needed is not to be had."""
        if await self._start():
            _log.info("ready: %d objects", sum(len(table) for table in self.db.tables.values()))
            await self._end.wait()
            await self.parts.stop()

    async def _start(self) -> bool:
        """Starts all parts; returns False where `end` was called meanwhile, and nothing is left running."""
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

    def _reached(self, nodes: Iterable[Node]) -> None:
        """Called when rows that follow from streams are in the tables."""
        self._checking.reached(nodes)
        if self._writers is not None:
            self._writers.reached(nodes)

    def _committed(self, commit: Commit) -> None:
        self._checking.reached(commit.hit)
        self._key_sets.reached(commit.hit)
        if self._gateway_names is not None:
            self._gateway_names.reached(commit.hit)
        self._notices.committed(commit)
        if any(table == MESH_CONFIG for table, _, _ in commit.edits):
            self._config_sources.configured(self._mesh_config())
            self.security.configured(self._mesh_config())
        if self._writers is not None:
            self._writers.committed(commit)
        self.webhooks.committed(commit)

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _make_parts(self) -> Iterator[Part]:
        """Yields what starts, in this order: readiness first of all, so that something answers 503; nothing is followed before proxies can
        connect, because parts stop in reverse and configuration stands still while streams drain."""
        if self._export is not None:
            yield Part("sending traces", stop=functools.partial(asyncio.to_thread, self._export.stop))
        yield from self._make_http_ports()
        if self.addresses.controlz is not None:
            yield self._port("ControlZ", ControlzPort(self.addresses.controlz, self.metrics, self.end))
        mesh_files = MeshFiles(*mesh_file_paths(self.settings), self._batch, self.problems)
        first = FirstLoad(mesh_files, self.files, self.kubernetes, self._config_sources, self._batch, self._clock)
        yield Part("the first load", first.start, self._config_sources.stop)
        yield Part("the key sets of issuers", self._key_sets.start, self._key_sets.stop)
        if self._gateway_names is not None:
            yield Part("the host names of gateways", self._gateway_names.start, self._gateway_names.stop)
        access = (self._secret_access.sweep,) if self._secret_access is not None else ()
        sweeper = Sweeper(
            self._clock, SWEEP_SECONDS, (self.discovery.sweep_in_steps, self.refusals.sweep, self.pusher.sweep, *access)
        )
        yield Part("the sweeper", sweeper.start, sweeper.stop)
        patches = (PatchStatus(self.db, self.metrics).check,) if self.settings.debug.patch_metrics else ()
        looks = Sweeper(self._clock, HEALTH_SECONDS, (self._health.check, *patches))
        yield Part("looking at the health of the mesh", stop=self._health.stop)
        yield Part("the clock of that", looks.start, looks.stop)
        memory = Sweeper(self._clock, GIVE_BACK_SECONDS, (GiveBack(find_trim()),))
        yield Part("giving memory back", memory.start, memory.stop)
        if self._secret_access is not None:
            yield Part("asking who may read Secrets", stop=self._secret_access.stop)
        yield from self.security.parts()
        if self.settings.authority.multiple_roots:
            yield Part(
                "telling proxies the roots",
                ToldRoots(self.security.authority, self.security.registration, self.discovery).start,
            )
        for services in self._grpc_services():
            if services.address is not None:
                yield self._port(services.name, self._grpc_port(services))
        yield from self.webhooks.parts()
        if self.addresses.webhooks is not None:
            yield self._port("webhooks", self.webhooks.make_port(self.addresses.webhooks, lambda: self.ready))
        if self._entries is not None:
            yield Part("registering workloads", self._entries.start, self._entries.stop)
        yield Part("following the mesh config", mesh_files.start, mesh_files.stop)
        for files in self.files:
            yield Part(f"following {files.folder}", files.start, files.stop)
        yield Part("following the sources of the mesh config", self._config_sources.follow)
        if self.kubernetes is not None and self._writers is not None:
            yield Part("following the API server", stop=self.kubernetes.stop)
            yield Part("writing to the API server", self._writers.start, self._writers.stop)

    def _grpc_services(self) -> tuple[GrpcServices, ...]:
        """Returns what each port of gRPC serves, and so whether its callers are identified."""
        addresses, security = self.addresses, self.security
        return self._services("xDS", addresses.grpc, security.plain), self._services(
            "secure xDS", addresses.secure, security.secure
        )

    def _services(self, name: str, address: Address | None, entrance: Entrance) -> GrpcServices:
        """Returns what one port serves. All ports have the proxies, the limit of new streams and what is being written in common."""
        limits, (meet, authenticate) = stream_limits_of(self.settings.serve), entrance
        ads = Ads(
            self.discovery,
            self.pusher,
            self.metrics,
            self._admission,
            self._aliases,
            limits,
            authenticate,
            meet,
            self.security.authorize,
            over_xds(self._sources),
            self._object_access(),
        )
        certificates = self.security.certificates(entrance)
        return GrpcServices(
            name,
            address,
            tuple(served.handlers() for served in (ads, certificates) if served is not None),
            ads.connections,
        )

    def _object_access(self) -> CheckObjectAccess:
        """Returns who may ask for configuration objects."""
        return (
            only(lambda: self._mesh_config().root_namespace)
            if self.settings.authentication.objects_for_root
            else anybody_may
        )

    def _grpc_port(self, services: GrpcServices) -> GrpcPort | SecurePort:
        if services.address is self.addresses.secure:
            return self.security.make_port(services)
        assert services.address is not None
        server = make_server(self.settings.serve, services.handlers)
        return GrpcPort(server, services.address, services.connections, self.settings.process.shutdown_duration)

    def _make_entries(self, ledger: Ledger) -> EntriesInMemory | None:
        """Returns what registers workloads in this process alone; None where they are written, or not registered."""
        kubernetes, registry = self.settings.kubernetes, self.settings.mesh.registry
        if not kubernetes.registration or (self._writers is not None and self._writers.entries is not None):
            return None
        terms = MemoryTerms(kubernetes.registration_grace.seconds, kubernetes.registration_identity)
        part = ledger.source(REGISTERED_RANK, "registered workloads")
        return EntriesInMemory(
            self.db, self._batch, part, DocumentOrigin(registry.cluster_id), terms, self.metrics.kubernetes
        )

    def _make_secret_access(self, clusters_of_files: set[str]) -> SecretAccess | None:
        """Returns what asks which accounts may read Secrets; None without an API server, where every account may read those of its namespace."""
        if self.kubernetes is None:
            self.db.commit([(self.db.secret_access, EVERY_ACCOUNT, True)])
            return None
        own, kubernetes = self.settings.mesh.registry.cluster_id, self.kubernetes
        return SecretAccess(
            self.discovery, SecretReview(kubernetes.client, own, clusters_of_files, kubernetes.remote.clusters)
        )

    def _mesh_config(self) -> MeshConfig:
        """Returns the mesh config of now."""
        found = self.db.mesh.peek("mesh")
        return found if isinstance(found, MeshConfig) else MeshConfig()

    def _file_source(self, ledger: Ledger, rank: int, folder: ConfigFolder) -> FileSource:
        """Returns the reader of a folder. Of folders of one cluster that declare the same object the first has it."""
        ingest, own = self.settings.ingest, self.settings.mesh.registry.cluster_id
        origin = DocumentOrigin(folder.cluster, folder.cluster == own, ingest.revision)
        part = ledger.source(rank, folder.path)
        return FileSource(folder.path, self._batch, part, origin, self._read, ingest.largest_file, ingest.state_dir)

    @functools.cached_property
    def _sources(self) -> Sources:
        """Returns what debug pages show, whichever way they are asked for."""
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
            health=lambda: self._health.found,
        )

    def _make_http_ports(self) -> Iterator[Part]:
        """Yields the ports of readiness, and of debug pages and metrics, which may be the same one."""
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
                yield self._port(name, HttpPort(app, address))

    def _port(self, name: str, port: HttpPort | GrpcPort | SecurePort) -> Part:
        self.ports[name] = port
        return Part(f"the {name} port", port.start, port.stop)


class _LoopClock:
    """The clock of the running event loop."""

    def time(self) -> float:
        return time.monotonic()

    def call_later(self, delay: float, callback: Callable[[], Any], /) -> Timer:
        return asyncio.get_running_loop().call_later(delay, callback)
