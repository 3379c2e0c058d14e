"""The TrafficExtensions and WasmPlugins of a workload, selected by the traffic that they apply to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from pilot.config.extensions.traffic_extension import ExecutionPhase, TrafficSelector
from pilot.config.kinds.istio import TRAFFIC_EXTENSION
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import root_namespace

Form = Literal["HTTP module", "network module", "script"]
_LOWEST = -(2**31)


class ListedExtension(NamedTuple):
    """The properties of an extension that filter chains depend on. `script` is the source code of a Lua script."""

    key: ObjectKey
    form: Form
    phase: ExecutionPhase
    priority: int
    match: tuple[TrafficSelector, ...]
    fails_open: bool = False
    script: str = ""

    def is_for(self, port: int) -> bool:
        """Return whether the extension applies to a port. 0 represents all ports that no extension names."""
        return not self.match or any(not m.ports or any(p.number == port for p in m.ports) for m in self.match)


@derived
def listed_extension(db: Mesh, key: ObjectKey) -> ListedExtension | None:
    """Return an extension, or None if it does not exist."""
    row = TRAFFIC_EXTENSION.get(db, key)
    if row is None:
        return None
    spec = row.spec
    priority = _LOWEST if spec.priority is None else spec.priority
    if spec.lua is not None:
        return ListedExtension(key, "script", spec.phase, priority, spec.match, script=spec.lua.inline_code)
    assert spec.wasm is not None
    form: Form = "network module" if spec.wasm.type == "NETWORK" else "HTTP module"
    return ListedExtension(key, form, spec.phase, priority, spec.match, spec.wasm.fail_strategy == "FAIL_OPEN")


@derived
def extensions_of_side(db: Mesh, keys: tuple[ObjectKey, ...], serves: bool) -> tuple[ListedExtension, ...]:
    """Return the extensions for the traffic that a workload receives as a server or, if not `serves`, sends as a
    client.

    They are ordered by priority, highest first. For equal priorities, extensions in the workload's namespace precede
    extensions in the root namespace, and older extensions precede newer ones. `keys` must be ordered by age.
    """
    root = root_namespace(db)
    extensions = (_for_mode(e, serves) for key in keys if (e := listed_extension(db, key)) is not None)
    return tuple(sorted((e for e in extensions if e is not None), key=lambda e: (-e.priority, e.key.namespace == root)))


def _for_mode(extension: ListedExtension, serves: bool) -> ListedExtension | None:
    """Return the extension with only the matches for the given mode, or None if none of its matches are for it."""
    other = "CLIENT" if serves else "SERVER"
    matches = tuple(m for m in extension.match if m.mode != other)
    return extension._replace(match=matches) if matches or not extension.match else None


def named_ports(extensions: Iterable[ListedExtension]) -> frozenset[int]:
    """Return the ports that extensions name. All other ports have the same extensions."""
    return frozenset(port.number for e in extensions for m in e.match for port in m.ports)
