"""A mesh that is read from API servers, what its proxies get, and everything that happens to them by chance."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pilot.config.group_kind import plural_of
from pilot.config.kind import AnyKind
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.kube_source import KubeSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.problems import ProblemStore
from pilot.ingest.watched_kinds import collection_of
from pilot.kube.api_client import ApiClient, RequestTimeouts
from pilot.kube.list_watch import NamespacedName
from testing.apiserver.definitions import definitions
from testing.apiserver.selectors import selector
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import PATIENCE, client_of, pace, until
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import World, proxy

Served = dict[str, dict[str, dict[str, bytes]]]
"""Resources by proxy, type URL and name."""
CLUSTERS = ("Kubernetes", "west")


def address(cluster: int, service: int, number: int) -> str:
    return f"10.{cluster * 100 + service // 200}.{service % 200}.{number + 1}"


def service_objects(cluster: int, service: int, pods: int, choose: random.Random) -> list[Plain]:
    """A Service with its pods and its slice, in a state that is drawn."""
    name, namespace = f"app-{service}", f"ns-{service % 20}"
    ready = [choose.random() < 0.8 for _ in range(pods)]
    labels = f"{{app: {name}, version: v{choose.randint(1, 2)}, security.istio.io/tlsMode: istio}}"
    made = [
        pod(f"{name}-{i}", address(cluster, service, i), namespace, labels=labels, ready=ready[i]) for i in range(pods)
    ]
    endpoints = [
        at(address(cluster, service, i), f"{name}-{i}", f"{{ready: {str(ready[i]).lower()}}}", namespace)
        for i in range(pods)
    ]
    ip = f"10.{200 + cluster}.{service // 250}.{service % 250}"
    spec = f"{{clusterIP: {ip}, clusterIPs: [{ip}], selector: {{app: {name}}}, ports: [{{name: http, port: {choose.choice((80, 81))}}}]}}"
    return [make("Service", name, spec, namespace), *made, endpoint_slice(name, *endpoints, namespace=namespace)]


def config_objects(service: int, choose: random.Random) -> list[Plain]:
    """Configuration for a service, in a state that is drawn."""
    namespace, host = f"ns-{service % 20}", f"app-{service}.ns-{service % 20}.svc.cluster.local"
    weight = choose.choice((10, 50, 90))
    route = f"[{{destination: {{host: {host}, subset: v1}}, weight: {weight}}}, {{destination: {{host: {host}}}, weight: {100 - weight}}}]"
    entry = f"{{hosts: [ext-{service}.com], ports: [{{number: {choose.choice((80, 90))}, name: http, protocol: HTTP}}], resolution: DNS}}"
    subsets = f"{{host: {host}, subsets: [{{name: v1, labels: {{version: v{choose.randint(1, 2)}}}}}]}}"
    sidecar = "{egress: [{hosts: ['./*']}]}" if choose.random() < 0.5 else "{egress: [{hosts: ['*/*']}]}"
    return [
        make("VirtualService", f"vs-{service}", f"{{hosts: [{host}], http: [{{route: {route}}}]}}", namespace),
        make("DestinationRule", f"dr-{service}", subsets, namespace),
        make("ServiceEntry", f"se-{service}", entry, namespace),
        make(
            "WorkloadEntry",
            f"we-{service}",
            f"{{address: 1.1.{service % 250}.{choose.randint(1, 3)}, labels: {{app: app-{service}}}}}",
            namespace,
        ),
        make("Sidecar", "default", sidecar, namespace),
        make(
            "PeerAuthentication", "default", f"{{mtls: {{mode: {choose.choice(('STRICT', 'PERMISSIVE'))}}}}}", namespace
        ),
    ]


class Servers:
    """The API servers of one cluster, or of two, with a mesh of `services`, each with `pods`."""

    def __init__(self, services: int, pods: int, clusters: int, choose: random.Random) -> None:
        self.services, self.pods, self.choose = services, pods, choose
        self.servers = [ApiServer() for _ in range(clusters)]
        for number, server in enumerate(self.servers):
            for plain in definitions():
                server.put(plain)
            for namespace in range(20):
                server.put(make("Namespace", f"ns-{namespace}"))
            for service in range(services):
                self._put(number, service_objects(number, service, pods, choose))
        for service in range(0, services, 5):
            self._put(0, config_objects(service, choose))

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
        """Ends all faults."""
        for server in self.servers:
            server.faults.disorder = None
            server.faults.no_watch_lists = False
            server.faults.clear()
            if not server.is_listening:
                await server.start()

    def edit(self) -> None:
        """Changes, adds or takes away something by chance."""
        number, service = self.choose.randrange(len(self.servers)), self.choose.randrange(self.services)
        server = self.servers[number]
        objects = service_objects(number, service, self.pods, self.choose)
        if number == 0 and self.choose.random() < 0.4:
            objects = config_objects(service, self.choose)
        for plain in self.choose.sample(objects, self.choose.randint(1, len(objects))):
            if self.choose.random() < 0.15:
                server.remove(plain)
            else:
                server.put(plain)

    async def disturb(self) -> None:
        """Has something go wrong by chance."""
        server, choose = self.choose.choice(self.servers), self.choose
        kind = choose.choice([resource.plural for resource in server.resources])
        match choose.randrange(8):
            case 0:
                how: Any = choose.choice(("close", "abort", "half a line", "expired"))
                server.faults.end_watches(
                    "close" if server.faults.disorder else how, lambda asked: asked.resource.plural == kind
                )
            case 1:
                server.faults.end_watches(
                    "close" if server.faults.disorder else choose.choice(("close", "abort", "half a line", "expired"))
                )
            case 2:
                server.store.compact()
            case 3:
                server.faults.refuse(choose.choice((401, 403, 410, 429, 500, 503, 504)), times=choose.randint(1, 5))
            case 4:
                server.faults.delay(0.001, times=3)
            case 5:
                server.faults.disorder = random.Random(choose.random())
            case 6:
                server.faults.no_watch_lists = choose.random() < 0.5
            case 7:
                if server.faults.disorder is None:  # connections that are lost take lines with them that came too early
                    await (server.stop() if server.is_listening else server.start())


class KubeWorld:
    """A mesh that lives on these servers, and its proxies. `patience`: a large mesh in the process of its servers takes longer to answer."""

    def __init__(self, servers: Servers, streams: bool, patience: RequestTimeouts = PATIENCE) -> None:
        self._servers = servers
        self.world = World()
        self.edits = 0
        self._patience = patience
        self._known: dict[tuple[int, Any], tuple[int, dict[NamespacedName, str]]] = {}
        ledger = Ledger(ProblemStore(lambda _: None))
        self.clients = [client_of(server, patience) for server in servers.servers]
        self.sources = [self._source(ledger, client, CLUSTERS[i], streams) for i, client in enumerate(self.clients)]
        sidecars = [
            proxy("sidecar", f"app-{n}-0", f"ns-{n % 20}", address(0, n, 0), {"app": f"app-{n}"}) for n in (0, 5, 11)
        ]
        router = proxy("router", "ingress-0", "ns-1", "10.99.0.1", {"app": "ingress"})
        self._proxies = [self.world.connect(each) for each in (*sidecars, router)]

    def _source(self, ledger: Ledger, client: ApiClient, cluster: str, streams: bool) -> KubeSource:
        origin = DocumentOrigin(cluster, cluster == CLUSTERS[0])
        rank = int(not origin.own)
        return KubeSource(
            client, self, ledger, rank, origin, self.world.mesh.catalogue, pace(streams), random.Random(1)
        )

    def put(self, edits: Iterable[Edit]) -> None:
        """Takes edits as a batch does, without waiting."""
        given = list(edits)
        self.edits += len(given)
        if given:
            self.world.commit(given)

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

    async def settled(self) -> None:
        """Returns when everything that the servers have has been received: a request that a stopping server took with it is given up first."""
        try:
            await until(lambda: not any(self._missing()), 60 + 2 * (self._patience.connect + self._patience.response))
        except TimeoutError:
            raise AssertionError(f"not received: {', '.join(self._missing())}") from None
        await asyncio.sleep(0)

    def _missing(self) -> Iterator[str]:
        """Which kinds of which cluster are not as the servers have them."""
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
        """What a server has of a kind, looked at again only where something has changed there."""
        known = self._known.get((id(server), kind.id))
        if known is None or known[0] != server.store.revision:
            known = self._known[id(server), kind.id] = server.store.revision, _there(server, kind)
        return known[1]

    def served(self) -> Served:
        """What every proxy gets."""
        assert self.world.failures == []
        return {
            node: {url: {name: r.any for name, r in have.items()} for url, have in self.world.resources(node).items()}
            for node in self._proxies
        }

    def rows(self) -> Mapping[Any, Any]:
        return self.world.rows()


def _there(server: ApiServer, kind: AnyKind) -> dict[NamespacedName, str]:
    """The resource versions of what a server has of a kind, as far as it is read."""
    selects = selector("", collection_of(kind, "v1").fields)
    objects = server.store.collection((kind.id.group, plural_of(kind.id))).objects
    return {
        NamespacedName(*key): str(stored.revision)
        for key, stored in objects.items()
        if selects is None or selects(stored.plain)
    }


async def start_fresh(servers: Servers, streams: bool, patience: RequestTimeouts = PATIENCE) -> KubeWorld:
    """A mesh that has just been started on the servers."""
    fresh = KubeWorld(servers, streams, patience)
    await fresh.start()
    return fresh


def difference(got: Served, want: Served) -> list[str]:
    """What is not as it should be."""
    return [
        f"{node} {url} {name}"
        for node, types in want.items()
        for url in types.keys() | got[node].keys()
        for name in sorted(types.get(url, {}).keys() | got[node].get(url, {}).keys())
        if types.get(url, {}).get(name) != got[node].get(url, {}).get(name)
    ]
