"""Allocated addresses stay the same while other ServiceEntries come and go, and after a restart."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.object import ObjectKey
from pilot.ingest import address_memory
from pilot.ingest.address_memory import FILE, AddressMemory
from pilot.ingest.batch import Batch
from pilot.ingest.decode import decode_document
from pilot.lib.duration import parse_duration
from pilot.mesh.registry.auto_addresses import allocated_addresses
from pilot.mesh.tables.database import REMEMBERED, Mesh
from pilot.settings.parse import load
from testing.mesh.clock import VirtualClock
from testing.mesh.objects import make


def entry(name: str, day: int = 1, host: str = "") -> dict[str, Any]:
    spec = f"{{hosts: ['{host or name}.example.com'], resolution: DNS, ports: [{{number: 80, name: http}}]}}"
    return make("ServiceEntry", name, spec, "a", day=day)


class Process:
    """A control plane that remembers addresses in a folder."""

    def __init__(self, folder: str = "", **environ: str) -> None:
        self.mesh = Mesh(load([], environ).settings.mesh)
        self.batch = Batch(
            self.mesh,
            VirtualClock(),
            parse_duration("100ms"),
            parse_duration("10s"),
            lambda commit: self.memory.reached(commit.hit),
        )
        self.memory = AddressMemory(self.mesh, self.batch, folder)

    def apply(self, *objects: dict[str, Any]) -> None:
        self.batch.put([e[:3] for o in objects for e in decode_document(o).entries])
        self.batch.flush()
        self.batch.flush()

    def delete(self, *names: str) -> None:
        self.batch.put([(SERVICE_ENTRY.table_name, ObjectKey("a", name), None) for name in names])
        self.batch.flush()

    def addresses(self) -> dict[str, str]:
        """Return the IPv4 address of each host."""
        node = self.mesh.watch(allocated_addresses)
        self.mesh.refresh(node)
        by_host = [item for hosts in node.value.values() for item in hosts.items()]
        return {host.removesuffix(".example.com"): (*addresses, "")[0] for host, addresses in by_host}


def test_deleting_an_entry_does_not_change_the_addresses_of_others() -> None:
    process = Process()
    process.apply(entry("x", 1), entry("y", 2), entry("z", 3))
    process.delete("x")
    assert process.addresses() == {"y": "240.240.0.2", "z": "240.240.0.3"}
    process.apply(entry("older", 1))
    assert process.addresses() == {"y": "240.240.0.2", "z": "240.240.0.3", "older": "240.240.0.4"}
    process.apply(entry("x", 4))
    assert process.addresses()["x"] == "240.240.0.1"


def test_addresses_of_other_entries_are_neither_copied_nor_compared_again() -> None:
    process = Process()
    process.apply(*(entry(f"e{n}", n + 1) for n in range(20)))
    node = process.mesh.watch(allocated_addresses)
    before = node.value
    process.apply(entry("e7", 8, "other"))
    process.mesh.refresh(node)
    assert node.value.keys() == before.keys()
    assert [key.name for key in before if node.value[key] is not before[key]] == ["e7"]
    assert process.addresses()["other"] == "240.240.0.21"


def test_hosts_of_an_entry_that_come_and_go_keep_their_addresses() -> None:
    process = Process()
    process.apply(entry("x", 1, "one"), entry("y", 2))
    process.apply(entry("x", 1, "two"))
    assert process.addresses() == {"two": "240.240.0.3", "y": "240.240.0.2"}
    process.apply(entry("x", 1, "one"))
    assert process.addresses() == {"one": "240.240.0.1", "y": "240.240.0.2"}


def test_changes_in_one_commit() -> None:
    process = Process()
    process.apply(entry("x", 1), entry("y", 2))
    process.batch.put([(SERVICE_ENTRY.table_name, ObjectKey("a", "x"), None)])
    process.apply(entry("older", 1))
    assert process.addresses() == {"y": "240.240.0.2", "older": "240.240.0.3"}


def test_address_that_a_user_or_a_status_claims_is_given_up() -> None:
    process = Process()
    process.apply(entry("x", 1), entry("y", 2))
    claim = entry("claims", 3)
    claim["status"] = {"addresses": [{"host": "claims.example.com", "value": "240.240.0.1"}]}
    process.apply(claim)
    assert process.addresses() == {"claims": "240.240.0.1", "y": "240.240.0.2", "x": "240.240.0.3"}


def test_addresses_of_deleted_entries_are_used_last() -> None:
    process = Process(PILOT_IP_AUTOALLOCATE_IPV4_PREFIX="240.240.0.0/30")
    process.apply(entry("x", 1), entry("y", 2))
    process.delete("x")
    process.apply(entry("z", 3))
    process.apply(entry("w", 4))
    assert process.addresses() == {"y": "240.240.0.2", "z": "240.240.0.3", "w": "240.240.0.1"}


def test_exhausted_prefix_changes_nothing_further() -> None:
    process = Process(PILOT_IP_AUTOALLOCATE_IPV4_PREFIX="240.240.0.0/30")
    process.apply(*(entry(f"e{n}", n) for n in range(1, 6)))
    before = process.mesh.allocated_addresses.get(REMEMBERED)
    process.batch.flush()
    process.batch.flush()
    assert process.mesh.allocated_addresses.get(REMEMBERED) is before
    assert process.addresses() == {
        "e1": "240.240.0.1", "e2": "240.240.0.2", "e3": "240.240.0.3", "e4": "2001:2::4", "e5": "2001:2::5"
    }  # fmt: skip
    process.delete("e1")
    process.apply(entry("e2", 2))
    assert process.addresses()["e4"] == "240.240.0.1"


async def test_addresses_survive_a_restart(tmp_path: pathlib.Path) -> None:
    process = Process(str(tmp_path / "state"))
    await process.memory.start()
    process.apply(entry("x", 1), entry("y", 2))
    process.delete("x")
    await process.memory.stop()
    restarted = Process(str(tmp_path / "state"))
    await restarted.memory.start()
    restarted.apply(entry("y", 2), entry("new", 1))
    assert restarted.addresses() == {"y": "240.240.0.2", "new": "240.240.0.3"}
    await restarted.memory.stop()


@pytest.mark.parametrize(
    "text", ["{", '[{"namespace": "a", "name": "x", "host": "x.example.com", "addresses": ["junk", ""]}]']
)
async def test_unusable_file_is_ignored(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    process = Process(str(tmp_path))
    await process.memory.start()
    process.apply(entry("x"))
    assert process.addresses() == {"x": "240.240.0.1"}
    await process.memory.stop()


def test_number_of_former_hosts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_memory, "MOST_FORMER", 20)
    process = Process()
    entries = [entry(f"e{n}", 1) for n in range(70)]
    process.apply(*entries)
    process.delete(*(f"e{n}" for n in range(len(entries))))
    process.apply(entry("x", 2))
    (remembered,) = (row for _, row in process.mesh.allocated_addresses.rows())
    assert len(remembered) == 21
    assert process.addresses() == {"x": "240.240.0.1"}
