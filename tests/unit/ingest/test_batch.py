from __future__ import annotations

import json
from collections.abc import Iterable

from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD, SERVICE
from pilot.config.kubernetes.endpoint_slice import EndpointPort, EndpointSlice
from pilot.config.kubernetes.service import Service
from pilot.config.networking.service_entry import CLUSTER_ENDPOINTS, HOST_ENDPOINTS
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.derive import derived
from pilot.ingest.batch import ADMITTED, MAX_FORMER, MAX_FORMER_ENDPOINTS, Batch, Commit
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.portions import LONGEST_PROCESSING, PORTION
from pilot.lib.duration import parse_duration
from pilot.mesh.registry.auto_addresses import allocated_addresses
from pilot.mesh.registry.services import visible_refs
from pilot.mesh.tables.database import Mesh
from testing.mesh.clock import VirtualClock
from testing.mesh.objects import Plain, at, endpoint_slice, make
from testing.mesh.world import rows_of

KEY = RegistryKey("Kubernetes", "shop", "a")


def row(kind: str = "ClusterIP") -> Object[Service]:
    return Object(GroupKind("", "Service"), "shop", "a", Service(type=kind))


@derived
def kind_of(db: Mesh, key: ObjectKey) -> str:
    row = SERVICE.table(db).get(key)
    return "" if row is None else row.spec.type


class TickingClock(VirtualClock):
    """A clock on which a millisecond passes whenever its time is read, so that a slice has a few edits."""

    def time(self) -> float:
        self.now += 0.001
        return self.now


class Batching:
    """A mesh whose edits are batched on a virtual clock."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.mesh, self.clock = Mesh(), clock or VirtualClock()
        self.commits: list[tuple[float, Commit]] = []
        self.start = self.clock.now
        self.batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("1s"), self.on_commit)

    def on_commit(self, commit: Commit) -> None:
        self.commits.append((round(self.clock.now - self.start, 3), commit))


def test_edit_waits_for_quiet() -> None:
    harness = Batching()
    harness.batch.put([(SERVICE.table_name, KEY, row())])
    harness.clock.advance(0.06)
    harness.batch.put([(SERVICE.table_name, KEY, row("NodePort"))])
    harness.clock.advance(0.09)
    assert harness.commits == []
    harness.clock.advance(0.02)
    ((at, commit),) = harness.commits
    assert at == 0.16
    assert commit.edits == [(SERVICE.table_name, KEY, row("NodePort"))]
    assert (commit.arrivals, round(commit.last - commit.first, 3)) == (2, 0.06)
    assert harness.clock.waiting == 0


def test_continuous_edits_areon_commit_at_the_maximum_delay() -> None:
    harness = Batching()
    for _ in range(25):
        harness.batch.put([(SERVICE.table_name, KEY, row())])
        harness.clock.advance(0.08)
    assert [at for at, _ in harness.commits] == [1.0]
    harness.clock.advance(1)
    assert [at for at, _ in harness.commits] == [1.0, 2.02]  # the last one came in at 1.92


def test_empty_put_is_a_no_op() -> None:
    harness = Batching()
    harness.batch.put([])
    assert harness.clock.waiting == 0
    harness.batch.flush()
    assert harness.commits == []


def test_flush_commits_immediately_and_once() -> None:
    harness = Batching()
    harness.batch.put([(SERVICE.table_name, KEY, row())])
    assert len(harness.batch) == 1
    harness.batch.flush()
    harness.clock.advance(5)
    assert [at for at, _ in harness.commits] == [0.0]
    assert len(harness.batch) == 0


def test_commit_lists_the_nodes_reached() -> None:
    harness = Batching()
    node = harness.mesh.watch(kind_of, KEY)
    harness.batch.put(
        [(SERVICE.table_name, KEY, row()), (SERVICE.table_name, RegistryKey("Kubernetes", "shop", "b"), row())]
    )
    harness.clock.advance(1)
    harness.batch.put([(SERVICE.table_name, KEY, None)])
    harness.clock.advance(1)
    assert [commit.hit for _, commit in harness.commits] == [[node], []]
    harness.mesh.refresh(node)
    assert node.value == ""


def test_edit_reverted_before_commit_reaches_nothing() -> None:
    harness = Batching()
    harness.mesh.watch(kind_of, KEY)
    harness.batch.put([(SERVICE.table_name, KEY, row())])
    harness.batch.put([(SERVICE.table_name, KEY, None)])
    harness.clock.advance(1)
    assert [commit.hit for _, commit in harness.commits] == [[]]


def service_edits(count: int) -> list[tuple[str, RegistryKey, Object[Service] | None]]:
    return [(SERVICE.table_name, RegistryKey("Kubernetes", "shop", f"s{i}"), row()) for i in range(count)]


def partly_applied(edits: list[tuple[str, RegistryKey, Object[Service] | None]]) -> Batching:
    """Return a batch of which only the first slice is applied."""
    harness = Batching(TickingClock())
    harness.batch.put(edits)
    while not harness.clock.turns or not len(SERVICE.table(harness.mesh)):
        harness.clock.advance(0.01)
    assert 0 < len(SERVICE.table(harness.mesh)) < len(edits)
    assert harness.commits == []
    return harness


def test_large_batch_is_applied_in_slices_and_reported_once() -> None:
    edits = service_edits(3 * ADMITTED + 1)
    harness = partly_applied(edits)
    harness.clock.advance(5)
    assert harness.clock.turns >= 20, "10 ms are over after 10 edits or a few more"
    ((_, commit),) = harness.commits
    assert commit.edits == edits
    assert commit.events == {(SERVICE.table_name, "add"): len(edits)}
    assert commit.arrivals == 1
    assert harness.clock.waiting == len(harness.batch) == 0


def test_edits_between_slices_win_in_the_next_commit() -> None:
    harness = partly_applied(service_edits(100))
    late_key = RegistryKey("Kubernetes", "shop", "s99")
    harness.batch.put([(SERVICE.table_name, late_key, row("NodePort"))])
    harness.clock.advance(5)
    assert [len(commit.edits) for _, commit in harness.commits] == [100, 1]
    assert SERVICE.table(harness.mesh).peek(late_key) == row("NodePort")


def test_flush_completes_a_partly_applied_batch() -> None:
    harness = partly_applied(service_edits(100))
    harness.batch.put([(SERVICE.table_name, KEY, row())])
    harness.batch.flush()
    assert len(SERVICE.table(harness.mesh)) == 101
    assert [len(commit.edits) for _, commit in harness.commits] == [100, 1]
    assert harness.clock.waiting == 0


def test_commit_lists_nodes_reached_by_every_slice() -> None:
    harness = Batching(TickingClock())
    watched = [harness.mesh.watch(kind_of, RegistryKey("Kubernetes", "shop", f"s{i}")) for i in (0, 50, 99)]
    harness.batch.put(service_edits(100))
    harness.clock.advance(5)
    ((_, commit),) = harness.commits
    assert set(commit.hit) == set(watched)
    assert commit.took > 0.1, "the slices together"


def test_service_entries_with_many_hosts_are_committed_in_slices() -> None:
    harness = Batching(TickingClock())
    watched = [harness.mesh.watch(visible_refs, "shop"), harness.mesh.watch(allocated_addresses)]
    runs = []
    for entries in (
        [make_entry(f"e{number}", 50) for number in range(20)],
        [make_entry("e7", 51)],
    ):
        harness.batch.put((table, key, entry) for (table, key), entry in rows_of(entries).items())
        while len(harness.batch) or harness.clock.waiting:
            turns, before = harness.clock.turns, harness.mesh.runs
            harness.clock.advance(0.001)
            runs.append((harness.mesh.runs - before) / max(harness.clock.turns - turns, 1))
    assert harness.commits[-1][1].hit
    visible, addresses = (harness.mesh.watch(node.fn, *node.args).value for node in watched)
    assert len(visible) == sum(map(len, addresses.values())) == 1001
    assert sum(runs) > 5000
    assert max(runs) <= 110, "all values of a slice, and those of the first hosts"


def make_entry(name: str, hosts: int) -> Plain:
    names = ", ".join(f"h{n}.{name}.example.com" for n in range(hosts))
    return make(
        "ServiceEntry",
        name,
        f"{{hosts: [{names}], resolution: DNS, ports: [{{number: 80, protocol: HTTP, name: http}}]}}",
    )


def test_continuous_endpoint_edits_areon_commit_early() -> None:
    harness = Batching()
    harness.batch.put([(SERVICE.table_name, KEY, row())])
    for number in range(12):
        harness.clock.advance(0.05)
        harness.batch.put([((POD.table_name, ENDPOINT_SLICE.table_name)[number % 2], KEY, None)])
    assert [at for at, _ in harness.commits] == [
        0.3,
        0.55,
    ]  # 250 ms after the first endpoint edit, with the service edited before it
    assert harness.commits[0][1].edits[0] == (SERVICE.table_name, KEY, row())


def test_longer_debounce_applies_to_endpoints() -> None:
    harness = Batching()
    harness.batch = Batch(harness.mesh, harness.clock, parse_duration("400ms"), parse_duration("1s"), harness.on_commit)
    for number in range(20):
        harness.batch.put([(SERVICE.table_name, KEY, row(f"kind {number}")), (POD.table_name, KEY, None)])
        harness.clock.advance(0.05)
    assert [at for at, _ in harness.commits] == [0.4, 0.8]


def test_endpoint_edits_skip_the_debounce_when_configured() -> None:
    harness = Batching()
    harness.batch = Batch(
        harness.mesh,
        harness.clock,
        parse_duration("100ms"),
        parse_duration("10s"),
        harness.on_commit,
        endpoints_wait=False,
    )
    harness.batch.put([(POD.table_name, KEY, None)])
    harness.clock.advance(0.001)
    assert len(harness.batch) == 0
    harness.batch.put([(SERVICE.table_name, KEY, row())])
    harness.batch.put([(POD.table_name, KEY, None)])
    harness.clock.advance(0.05)
    assert len(harness.batch) == 2, "endpoints batched with other edits wait for quiet"
    harness.clock.advance(0.1)
    assert len(harness.batch) == 0


def test_commit_has_the_former_rows_of_those_that_were_updated() -> None:
    harness = Batching()
    harness.batch.put([(SERVICE.table_name, KEY, row())])
    harness.batch.flush()
    harness.batch.put([(SERVICE.table_name, KEY, row("NodePort"))])
    harness.batch.flush()
    harness.batch.put([(SERVICE.table_name, KEY, None)])
    harness.batch.flush()
    assert [commit.former for _, commit in harness.commits] == [{}, {(SERVICE.table_name, KEY): row()}, {}]


def test_former_rows_are_limited() -> None:
    harness = Batching()
    keys = [KEY._replace(name=f"s{number}") for number in range(MAX_FORMER + 1)]
    for kind in ("ClusterIP", "NodePort"):
        harness.batch.put([(SERVICE.table_name, key, row(kind)) for key in keys])
        harness.batch.flush()
    assert len(harness.commits[-1][1].former) == MAX_FORMER


def test_former_rows_of_endpoints_are_limited_apart() -> None:
    harness = Batching()
    keys = [RegistryKey("c", "a", f"s{number}") for number in range(MAX_FORMER)]
    for port in (80, 81):
        spec = EndpointSlice(ports=(EndpointPort(port=port),))
        slices = [Object(ENDPOINT_SLICE.id, key.namespace, key.name, spec) for key in keys]
        harness.batch.put([(ENDPOINT_SLICE.table_name, key, one) for key, one in zip(keys, slices, strict=True)])
        harness.batch.put([(SERVICE.table_name, KEY, row(f"NodePort{port}"))])
        harness.batch.flush()
    former = harness.commits[-1][1].former
    assert (len(former), (SERVICE.table_name, KEY) in former) == (MAX_FORMER_ENDPOINTS + 1, True)


# -- portions ----------------------------------------------------------------------------------------------------------


def entries_with(clusters: int, names: Iterable[str], namespace: str = "a") -> list[Edit]:
    """Return edits of ServiceEntries that have this number of clusters each."""
    hosts = [[f"h{n}.{name}.{namespace}.com" for n in range(clusters)] for name in names]
    ports = [{"number": 80, "protocol": "HTTP", "name": "http"}]
    objects = [
        make("ServiceEntry", name, json.dumps({"hosts": listed, "ports": ports, "resolution": "DNS"}), namespace)
        for name, listed in zip(names, hosts, strict=True)
    ]
    return [(table, key, entry) for (table, key), entry in rows_of(objects).items()]


def committed(harness: Batching) -> list[list[str]]:
    """Return the names of the objects of each commit."""
    return [[key.name for _, key, _ in commit.edits] for _, commit in harness.commits]  # type: ignore[attr-defined]


class Portioned(Batching):
    """A batch whose commits are processed when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_processed = True
        self.batch = Batch(
            self.mesh,
            self.clock,
            parse_duration("100ms"),
            parse_duration("1s"),
            self.on_commit,
            are_processed=lambda: self.is_processed,
        )

    def on_commit(self, commit: Commit) -> None:
        super().on_commit(commit)
        self.is_processed = False


LARGE = PORTION // (HOST_ENDPOINTS + CLUSTER_ENDPOINTS) // 2
"""Number of clusters of ServiceEntries of which a portion has two."""


def test_next_portion_of_a_large_change_waits_until_the_previous_one_is_processed() -> None:
    harness = Portioned()
    harness.batch.put(entries_with(LARGE, "vwxyz"))
    harness.clock.advance(1)
    assert committed(harness) == [["v", "w"]]
    assert len(harness.batch) == 3
    harness.is_processed = True
    harness.clock.advance(1)
    assert committed(harness) == [["v", "w"], ["x", "y"]]
    harness.is_processed = True
    harness.clock.advance(1)
    assert committed(harness) == [["v", "w"], ["x", "y"], ["z"]]
    assert [(commit.arrivals, round(commit.first - harness.start, 3)) for _, commit in harness.commits] == [
        (1, 0.0), (0, 0.0), (0, 0.0),
    ]  # fmt: skip
    assert len(harness.batch) == harness.clock.waiting == 0


def test_next_portion_does_not_wait_for_long() -> None:
    harness = Portioned()
    harness.batch.put(entries_with(LARGE, "xyz"))
    harness.clock.advance(LONGEST_PROCESSING)
    assert committed(harness) == [["x", "y"]]
    harness.clock.advance(0.2)
    assert committed(harness) == [["x", "y"], ["z"]]


def test_changes_of_other_namespaces_and_endpoints_do_not_wait_for_portions() -> None:
    harness = Portioned()
    harness.batch.put(entries_with(LARGE, "xyz"))
    harness.clock.advance(0.2)
    slice_edits = [
        (table, key, row) for (table, key), row in rows_of([endpoint_slice("late", at("10.1.0.2", "p"))]).items()
    ]
    harness.batch.put([*entries_with(LARGE, "q", "b"), *slice_edits])
    harness.clock.advance(0.2)
    assert [set(names) for names in committed(harness)[:1]] == [{"x", "y"}]
    assert "q" in committed(harness)[1]
    assert len(committed(harness)[1]) == 2
    assert len(harness.batch) == 1
    assert round(harness.commits[1][1].first - harness.start, 3) == 0.2, "not the time of the edits that wait"
    harness.is_processed = True
    harness.clock.advance(0.2)
    assert committed(harness)[2] == ["z"]
    assert round(harness.commits[2][1].first - harness.start, 3) == 0.0


def test_later_changes_of_the_namespace_keep_their_order() -> None:
    harness = Portioned()
    removed = entries_with(1, "x")
    harness.batch.put(removed)
    harness.clock.advance(0.2)
    harness.is_processed = True
    harness.batch.put([*entries_with(LARGE, "abc"), *((table, key, None) for table, key, _ in removed)])
    harness.clock.advance(0.2)
    assert committed(harness)[1:] == [["a", "b"]]
    harness.is_processed = True
    harness.clock.advance(0.2)
    assert committed(harness)[1:] == [["a", "b"], ["c", "x"]]


def test_newer_edits_replace_those_that_wait_for_a_portion() -> None:
    harness = Portioned()
    harness.batch.put(entries_with(LARGE, "xyz"))
    harness.clock.advance(0.2)
    harness.batch.put((table, key, None) for table, key, _ in entries_with(LARGE, "z"))
    harness.is_processed = True
    harness.clock.advance(0.5)
    assert committed(harness) == [["x", "y"], ["z"]]
    assert len(SERVICE_ENTRY.table(harness.mesh)) == 2


def test_flush_commits_all_portions() -> None:
    harness = Portioned()
    harness.batch.put(entries_with(LARGE, "vwxyz"))
    harness.clock.advance(0.2)
    harness.batch.flush()
    assert committed(harness) == [["v", "w"], ["x", "y", "z"]]
    assert harness.clock.waiting == 0
