"""Every WasmPlugin."""

from __future__ import annotations

from pilot.config.extensions.wasm_plugin import WasmPlugin
from pilot.mesh.kinds.view import KindView

wasm_plugins = KindView[WasmPlugin]("WasmPlugin", lambda db: db.wasm_plugins)
