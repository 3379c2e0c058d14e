"""A mesh read from API servers, with random edits and faults, and the resources of its proxies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pilot.config.group_kind import plural_of
from pilot.config.kind import AnyKind
from pilot.ingest.cluster.kube_source import KubeSource
from pilot.ingest.cluster.watched_kinds import collection_of
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.ledger import Ledger
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.problems import ProblemStore
from pilot.kube.api_client import ApiClient, RequestTimeouts
from pilot.kube.list_watch import NamespacedName
from testing.apiserver.definitions import definitions
from testing.apiserver.selectors import selector
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import TIMEOUTS, client_of, until, watch_options
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import World, proxy

Resources = dict[str, dict[str, dict[str, bytes]]]
"""Resources by proxy, type URL and name."""
CLUSTERS = ("Kubernetes", "west")


def address(cluster: int, service: int, number: int) -> str:
    """Return the address of a pod."""
    return f"10.{cluster * 100 + service // 200}.{service % 200}.{number + 1}"


def service_objects(cluster: int, service: int, pods: int, rng: random.Random) -> list[Plain]:
    """Return a Service with its pods and its EndpointSlice, in a random state."""
    name, namespace = f"app-{service}", f"ns-{service % 20}"
    ready = [rng.random() < 0.8 for _ in range(pods)]
    labels = f"{{app: {name}, version: v{rng.randint(1, 2)}, security.istio.io/tlsMode: istio}}"
    pod_objects = [
        pod(f"{name}-{i}", address(cluster, service, i), namespace, labels=labels, ready=ready[i]) for i in range(pods)
    ]
    endpoints = [
        at(address(cluster, service, i), f"{name}-{i}", f"{{ready: {str(ready[i]).lower()}}}", namespace)
        for i in range(pods)
    ]
    ip = f"10.{200 + cluster}.{service // 250}.{service % 250}"
    spec = f"{{clusterIP: {ip}, clusterIPs: [{ip}], selector: {{app: {name}}}, ports: [{{name: http, port: {rng.choice((80, 81))}}}]}}"
    return [make("Service", name, spec, namespace), *pod_objects, endpoint_slice(name, *endpoints, namespace=namespace)]


def config_objects(service: int, rng: random.Random) -> list[Plain]:
    """Return configuration for a service, in a random state."""
    namespace, host = f"ns-{service % 20}", f"app-{service}.ns-{service % 20}.svc.cluster.local"
    weight = rng.choice((10, 50, 90))
    route = f"[{{destination: {{host: {host}, subset: v1}}, weight: {weight}}}, {{destination: {{host: {host}}}, weight: {100 - weight}}}]"
    entry = f"{{hosts: [ext-{service}.com], ports: [{{number: {rng.choice((80, 90))}, name: http, protocol: HTTP}}], resolution: DNS}}"
    subsets = f"{{host: {host}, subsets: [{{name: v1, labels: {{version: v{rng.randint(1, 2)}}}}}]}}"
    sidecar = "{egress: [{hosts: ['./*']}]}" if rng.random() < 0.5 else "{egress: [{hosts: ['*/*']}]}"
    return [
        make("VirtualService", f"vs-{service}", f"{{hosts: [{host}], http: [{{route: {route}}}]}}", namespace),
        make("DestinationRule", f"dr-{service}", subsets, namespace),
        make("ServiceEntry", f"se-{service}", entry, namespace),
        make(
            "WorkloadEntry",
            f"we-{service}",
            f"{{address: 1.1.{service % 250}.{rng.randint(1, 3)}, labels: {{app: app-{service}}}}}",
            namespace,
        ),
        make("Sidecar", "default", sidecar, namespace),
        make("PeerAuthentication", "default", f"{{mtls: {{mode: {rng.choice(('STRICT', 'PERMISSIVE'))}}}}}", namespace),
    ]


class Servers:
    """The API servers of one or two clusters, with a mesh of `services` that have `pods` each."""

    def __init__(self, services: int, pods: int, clusters: int, rng: random.Random) -> None:
        self.services, self.pods, self.rng = services, pods, rng
        self.servers = [ApiServer() for _ in range(clusters)]
        for number, server in enumerate(self.servers):
            for plain in definitions():
                server.put(plain)
            for namespace in range(20):
                server.put(make("Namespace", f"ns-{namespace}"))
            for service in range(services):
                self._put(number, service_objects(number, service, pods, rng))
        for service in range(0, services, 5):
            self._put(0, config_objects(service, rng))

    def _put(self, number: int, objects: Iterable[Plain]) -> None:
        for plain in objects:
            self.servers[number].put(plain)

    async def start(self) -> None:
        for server in self.servers:
            await server.start()

    async def stop(self) -> None:
        for server in self.servers:
            await server.stop()

    async def recover(self) -> None:
        """Stop injecting faults."""
        for server in self.servers:
            server.faults.disorder = None
            server.faults.no_watch_lists = False
            server.faults.clear()
            if not server.is_listening:
                await server.start()

    def edit(self) -> None:
        """Change, add or delete random objects."""
        number, service = self.rng.randrange(len(self.servers)), self.rng.randrange(self.services)
        server = self.servers[number]
        objects = service_objects(number, service, self.pods, self.rng)
        if number == 0 and self.rng.random() < 0.4:
            objects = config_objects(service, self.rng)
        for plain in self.rng.sample(objects, self.rng.randint(1, len(objects))):
            if self.rng.random() < 0.15:
                server.remove(plain)
            else:
                server.put(plain)

    async def inject_fault(self) -> None:
        """Inject a random fault."""
        server, rng = self.rng.choice(self.servers), self.rng
        kind = rng.choice([resource.plural for resource in server.resources])
        match rng.randrange(8):
            case 0:
                how: Any = rng.choice(("close", "abort", "half a line", "expired"))
                server.faults.end_watches(
                    "close" if server.faults.disorder else how, lambda info: info.resource.plural == kind
                )
            case 1:
                server.faults.end_watches(
                    "close" if server.faults.disorder else rng.choice(("close", "abort", "half a line", "expired"))
                )
            case 2:
                server.store.compact()
            case 3:
                server.faults.refuse(rng.choice((401, 403, 410, 429, 500, 503, 504)), times=rng.randint(1, 5))
            case 4:
                server.faults.delay(0.001, times=3)
            case 5:
                server.faults.disorder = random.Random(rng.random())
            case 6:
                server.faults.no_watch_lists = rng.random() < 0.5
            case 7:
                if server.faults.disorder is None:  # a lost connection could drop lines that were sent out of order
                    await (server.stop() if server.is_listening else server.start())


class KubeWorld:
    """A mesh that is read from these servers, and its proxies.

    `timeouts` need to be long for large meshes, because the servers run in the same process.
    """

    def __init__(self, servers: Servers, streams: bool, timeouts: RequestTimeouts = TIMEOUTS) -> None:
        self._servers = servers
        self.world = World()
        self.edits = 0
        self._timeouts = timeouts
        self._versions: dict[tuple[int, Any], tuple[int, dict[NamespacedName, str]]] = {}
        ledger = Ledger(ProblemStore(lambda _: None))
        self.clients = [client_of(server, timeouts) for server in servers.servers]
        self.sources = [self._source(ledger, client, CLUSTERS[i], streams) for i, client in enumerate(self.clients)]
        sidecars = [
            proxy("sidecar", f"app-{n}-0", f"ns-{n % 20}", address(0, n, 0), {"app": f"app-{n}"}) for n in (0, 5, 11)
        ]
        router = proxy("router", "ingress-0", "ns-1", "10.99.0.1", {"app": "ingress"})
        self._proxies = [self.world.connect(member) for member in (*sidecars, router)]

    def _source(self, ledger: Ledger, client: ApiClient, cluster: str, streams: bool) -> KubeSource:
        origin = DocumentOrigin(cluster, cluster == CLUSTERS[0])
        rank = int(not origin.own)
        return KubeSource(
            client, self, ledger, rank, origin, self.world.mesh.catalogue, watch_options(streams), random.Random(1)
        )

    def put(self, edits: Iterable[Edit]) -> None:
        """Commit edits immediately, without debouncing."""
        batch = list(edits)
        self.edits += len(batch)
        if batch:
            self.world.commit(batch)

    async def start(self) -> None:
        for source in self.sources:
            await source.start()
        for source in self.sources:
            await source.synced()

    async def stop(self) -> None:
        for source in self.sources:
            await source.stop()
        for client in self.clients:
            await client.close()

    async def wait_until_synced(self) -> None:
        """Wait until the sources have received everything.

        Requests that were lost with a stopped server time out first.
        """
        try:
            await until(lambda: not any(self._missing()), 60 + 2 * (self._timeouts.connect + self._timeouts.response))
        except TimeoutError:
            raise AssertionError(f"not received: {', '.join(self._missing())}") from None
        await asyncio.sleep(0)

    def _missing(self) -> Iterator[str]:
        """Yield the kinds and clusters for which a source is not up to date."""
        for source, server in zip(self.sources, self._servers.servers, strict=True):
            for kind in self.world.mesh.catalogue:
                if source.cluster != CLUSTERS[0] and not kind.per_cluster:
                    continue
                watch = source.watches.get(kind.id)
                if (
                    watch is None
                    or watch.informer.receiving
                    or watch.informer.versions != self._versions_at(server, kind)
                ):
                    yield f"{kind.id} of {source.cluster}"

    def _versions_at(self, server: ApiServer, kind: AnyKind) -> dict[NamespacedName, str]:
        """Return the versions of a server's objects of a kind, cached until the server changes."""
        cached = self._versions.get((id(server), kind.id))
        if cached is None or cached[0] != server.store.revision:
            cached = self._versions[id(server), kind.id] = server.store.revision, _current_versions(server, kind)
        return cached[1]

    def resources(self) -> Resources:
        """Return the resources of every proxy."""
        assert self.world.failures == []
        return {
            node: {
                url: {name: r.any for name, r in by_name.items()} for url, by_name in self.world.resources(node).items()
            }
            for node in self._proxies
        }

    def rows(self) -> Mapping[Any, Any]:
        return self.world.rows()


def _current_versions(server: ApiServer, kind: AnyKind) -> dict[NamespacedName, str]:
    """Return the resource versions of a server's objects of a kind that are in the scope of the source."""
    selects = selector("", collection_of(kind, "v1").fields)
    objects = server.store.collection((kind.id.group, plural_of(kind.id))).objects
    return {
        NamespacedName(*key): str(stored.revision)
        for key, stored in objects.items()
        if selects is None or selects(stored.plain)
    }


async def start_fresh(servers: Servers, streams: bool, timeouts: RequestTimeouts = TIMEOUTS) -> KubeWorld:
    """Return a mesh that was just started with these servers."""
    fresh = KubeWorld(servers, streams, timeouts)
    await fresh.start()
    return fresh


def difference(actual: Resources, expected: Resources) -> list[str]:
    """Return the differences between two sets of resources."""
    return [
        f"{node} {url} {name}"
        for node, types in expected.items()
        for url in types.keys() | actual[node].keys()
        for name in sorted(types.get(url, {}).keys() | actual[node].get(url, {}).keys())
        if types.get(url, {}).get(name) != actual[node].get(url, {}).get(name)
    ]
