"""Extensions of users, TrafficExtensions and WasmPlugins: which of those that apply to a workload are for which of its traffic."""

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
    """An extension as chains of filters have it: all but what its code is and is told. `script` is the text of a script of Lua."""

    key: ObjectKey
    form: Form
    phase: ExecutionPhase
    priority: int
    match: tuple[TrafficSelector, ...]
    fails_open: bool = False
    script: str = ""

    def is_for(self, port: int) -> bool:
        """Returns whether it is for the traffic of a port, 0 for ports that nothing names."""
        return not self.match or any(not m.ports or any(p.number == port for p in m.ports) for m in self.match)


@derived
def listed_extension(db: Mesh, key: ObjectKey) -> ListedExtension | None:
    """Returns an extension; None for one that is gone."""
    found = TRAFFIC_EXTENSION.get(db, key)
    if found is None:
        return None
    spec = found.spec
    priority = _LOWEST if spec.priority is None else spec.priority
    if spec.lua is not None:
        return ListedExtension(key, "script", spec.phase, priority, spec.match, script=spec.lua.inline_code)
    assert spec.wasm is not None
    form: Form = "network module" if spec.wasm.type == "NETWORK" else "HTTP module"
    return ListedExtension(key, form, spec.phase, priority, spec.match, spec.wasm.fail_strategy == "FAIL_OPEN")


@derived
def extensions_of_side(db: Mesh, keys: tuple[ObjectKey, ...], serves: bool) -> tuple[ListedExtension, ...]:
    """Returns the extensions for the traffic that a workload serves, or for that of which it is a client; those with a higher priority come first,
    of one priority those of the workload's own namespace, then the oldest. `keys` are in order of age."""
    root = root_namespace(db)
    found = (_for_mode(e, serves) for key in keys if (e := listed_extension(db, key)) is not None)
    return tuple(sorted((e for e in found if e is not None), key=lambda e: (-e.priority, e.key.namespace == root)))


def _for_mode(extension: ListedExtension, serves: bool) -> ListedExtension | None:
    """Returns the extension with what it says of one mode alone; None where that is nothing."""
    other = "CLIENT" if serves else "SERVER"
    kept = tuple(m for m in extension.match if m.mode != other)
    return extension._replace(match=kept) if kept or not extension.match else None


def named_ports(extensions: Iterable[ListedExtension]) -> frozenset[int]:
    """Returns the ports that extensions name: at all others they do the same."""
    return frozenset(port.number for e in extensions for m in e.match for port in m.ports)
