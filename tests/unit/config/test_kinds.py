"""A kind has one reader: what follows from other kinds can then join it without anyone noticing."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

import pilot
from pilot.derive import Table
from pilot.mesh.tables.database import Mesh

ROOT = pathlib.Path(pilot.__file__).parent
KINDS = "model/views/kinds/"
TABLES = frozenset(name for name, value in vars(Mesh()).items() if isinstance(value, Table))
OTHERS = {  # of what is no kind of objects
    "mesh": "mesh/tables/mesh_config.py",
    "proxies": "mesh/tables/proxies.py",
    "jwks": "mesh/security/jwt.py",
    "secret_access": "mesh/tables/secret_access.py",
    "resolved_hosts": "mesh/registry/networks.py",
    "refusals": "mesh/tables/nacks.py",
    "authority_roots": "mesh/tables/trust_bundle.py",
}
READER = {name: f"{KINDS}{name}.py" for name in TABLES} | OTHERS


def reads(source: str) -> Iterator[tuple[str, int]]:
    """The tables that are taken from something called `db`, and where; `getattr` counts as reading what it names."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in TABLES
            and isinstance(node.value, ast.Name)
            and node.value.id == "db"
        ):
            yield node.attr, node.lineno
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "getattr"
            and ast.unparse(node.args[0]) == "db"
        ):
            yield ast.unparse(node.args[1]), node.lineno


def found_below(*folders: str) -> list[tuple[str, str]]:
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return [(table, f"{path.relative_to(ROOT)}") for path in files for table, _ in reads(path.read_text())]


def test_a_table_is_read_by_the_one_module_of_its_kind() -> None:
    strangers = [(table, path) for table, path in found_below("model", "translate") if path != READER.get(table)]
    assert strangers == []
    assert set(found_below("model")) == set(READER.items())


def test_nothing_in_translate_reads_a_table() -> None:
    assert found_below("translate") == []


def test_a_read_in_a_stranger_would_be_found() -> None:
    source = "def f(db: Mesh) -> None:\n    db.gateways.get(key)\n    getattr(db, 'mesh')"
    assert set(reads(source)) == {("gateways", 2), ("'mesh'", 3)}
