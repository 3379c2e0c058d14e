"""Rules for reading tables: derivations read kinds through `Kind`, and every other table in one module."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

import pytest

import pilot
from pilot.config.catalogue import CATALOGUE
from pilot.config.kinds.istio import GATEWAY, SERVICE_ENTRY, SIDECAR, VIRTUAL_SERVICE
from pilot.derive import Table
from pilot.mesh.tables.database import Mesh

ROOT = pathlib.Path(pilot.__file__).parent
READERS = {
    "mesh": "mesh/tables/mesh_config.py",
    "proxies": "mesh/tables/proxies.py",
    "jwks": "mesh/security/jwt.py",
    "secret_access": "mesh/tables/credentials.py",
    "resolved_hosts": "mesh/registry/networks.py",
    "nacks": "mesh/tables/nacks.py",
    "allocated_addresses": "mesh/registry/auto_addresses.py",
    "authority_roots": "mesh/tables/trust.py",
    "clock": "mesh/tables/clock.py",
    "pod_templates": "mesh/registry/pod_templates.py",
}
"""Tables that do not belong to a kind, and the only module that may read each."""


def reads(source: str) -> Iterator[tuple[str, int]]:
    """Yield the attributes of `db` that are tables, calls of `.table(db)` and uses of `db.tables`, with their lines."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="db"), attr=name) if name in READERS or name == "tables":
                yield name, node.lineno
            case ast.Call(func=ast.Attribute(attr="table"), args=[ast.Name(id="db")]):
                yield "table", node.lineno


def reads_below(*folders: str) -> set[tuple[str, str]]:
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {(name, f"{path.relative_to(ROOT)}") for path in files for name, _ in reads(path.read_text())}


def test_each_table_is_read_in_one_module() -> None:
    assert {name for name, value in vars(Mesh()).items() if isinstance(value, Table)} == set(READERS)
    assert reads_below("mesh", "envoy") == set(READERS.items())


def test_all_forms_of_reads_are_recognised() -> None:
    source = "def f(db: Mesh) -> None:\n    db.mesh.get(key)\n    GATEWAY.table(db).get(key)\n    db.tables['Pod']"
    assert set(reads(source)) == {("mesh", 2), ("table", 3), ("tables", 4)}


def test_kinds_have_their_sources() -> None:
    names = {kind.id.name for kind in CATALOGUE if kind.sources}
    assert names == {"VirtualService", "Gateway", "DestinationRule", "ServiceEntry", "TrafficExtension"}
    assert [source.rows.__name__ for source in VIRTUAL_SERVICE.sources] == [
        "virtual_services_of_http_routes",
        "virtual_services_of_layer4_routes",
        "virtual_services_of_ingresses",
    ], "the first source wins"
    assert [source.rows.__name__ for source in GATEWAY.sources] == ["gateways_of_listeners", "gateways_of_ingresses"]


def test_source_cannot_be_added_after_a_database_exists() -> None:
    Mesh()
    with pytest.raises(RuntimeError, match="a database already exists"):
        SIDECAR.add_source(lambda db: {})
    assert SIDECAR.sources == ()


def test_disabled_source_is_not_read() -> None:
    db = Mesh()
    SERVICE_ENTRY.all_keys(db)
    assert {node.fn.__name__ for node in db.live_nodes()} == {"every networking.istio.io/ServiceEntry"}
