"""Every TrafficExtension: those that users write, and those that WasmPlugins stand for."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.extensions.traffic_extension import ExecutionPhase, TrafficExtension, WasmConfig
from pilot.config.extensions.wasm_plugin import PluginPhase, WasmPlugin
from pilot.config.group_kind import EXTENSIONS, GroupKind
from pilot.config.object import Object, ObjectKey
from pilot.derive import Gather, derived
from pilot.mesh.kinds.view import KindView
from pilot.mesh.kinds.wasm_plugins import wasm_plugins
from pilot.mesh.tables.database import Mesh

FROM_WASM_PLUGIN = "~istio-translated-wasmplugin"
"""What the names of extensions end with that WasmPlugins stand for. No object of a cluster can have it in its name."""
_KIND = GroupKind(EXTENSIONS, "TrafficExtension")
_PHASES: dict[PluginPhase, ExecutionPhase] = {
    "UNSPECIFIED_PHASE": "UNSPECIFIED",
    "AUTHN": "AUTHN",
    "AUTHZ": "AUTHZ",
    "STATS": "STATS",
}
_MODULE = tuple(WasmConfig.__struct_fields__)


@derived
def _keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return wasm_plugins.all_keys(db)


@derived
def _extension_of(db: Mesh, key: ObjectKey) -> Object[TrafficExtension] | None:
    found = wasm_plugins.get(db, key)
    if found is None:
        return None
    return Object(
        _KIND,
        found.namespace,
        found.name + FROM_WASM_PLUGIN,
        extension_of(found.spec),
        found.labels,
        found.annotations,
        found.created,
    )


_extensions: Gather[ObjectKey, [], Object[TrafficExtension]] = Gather(
    "extensions_of_wasm_plugins", _keys, _extension_of
)


@derived
def extensions_of_wasm_plugins(db: Mesh) -> Mapping[ObjectKey, Object[TrafficExtension]]:
    """Returns the extensions that WasmPlugins stand for."""
    return {made.key: made for made in _extensions(db).values()}


def extension_of(plugin: WasmPlugin) -> TrafficExtension:
    """Returns the extension that a WasmPlugin stands for."""
    targets = plugin.target_refs or ((plugin.target_ref,) if plugin.target_ref is not None else ())
    module = WasmConfig(**{name: getattr(plugin, name) for name in _MODULE})
    return TrafficExtension(plugin.selector, targets, _PHASES[plugin.phase], plugin.priority, plugin.match, module)


traffic_extensions = KindView[TrafficExtension](
    "TrafficExtension", lambda db: db.traffic_extensions, extensions_of_wasm_plugins
)
