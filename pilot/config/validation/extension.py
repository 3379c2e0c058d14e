"""Validation of TrafficExtensions and WasmPlugins."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pilot.config.extensions.traffic_extension import LuaConfig, TrafficExtension, TrafficSelector, VmConfig, WasmConfig
from pilot.config.extensions.wasm_plugin import WasmPlugin
from pilot.config.object import Object
from pilot.config.problem import Problems, below, each, error
from pilot.config.validation import rules
from pilot.config.validation.policy import check_attachment

LUA_BYTES, SECRET_NAME, NAME, VALUE = 65536, 253, 256, 2048
_SHA256 = re.compile("[a-f0-9]{64}")
_SCHEMES = ("", "file", "http", "https", "oci")


def validate_wasm_plugin(o: Object[WasmPlugin]) -> Problems:
    plugin = o.spec
    yield from below("spec", check_attachment(plugin.selector, plugin.target_ref, plugin.target_refs))
    yield from below("spec", _check_module(plugin))
    yield from each("spec.match", plugin.match, _check_traffic)


def validate_traffic_extension(o: Object[TrafficExtension]) -> Problems:
    extension = o.spec
    yield from below("spec", check_attachment(extension.selector, None, extension.target_refs))
    if extension.wasm is not None:
        yield from below("spec.wasm", _check_module(extension.wasm))
    elif extension.lua is not None:
        yield from below("spec.lua", _check_lua(extension.lua))
    else:
        yield error("missing-field", "spec", "wasm or lua is required")
    yield from each("spec.match", extension.match, _check_traffic)


def _check_module(module: WasmConfig | WasmPlugin) -> Problems:
    yield from _check_url(module.url)
    if module.sha256 and not _SHA256.fullmatch(module.sha256):
        yield error("bad-checksum", "sha256", "must be 64 hexadecimal digits in lower case")
    if len(module.image_pull_secret) > SECRET_NAME:
        yield error("too-long", "imagePullSecret", f"must be at most {SECRET_NAME} characters")
    if len(module.plugin_name) > NAME:
        yield error("too-long", "pluginName", f"must be at most {NAME} characters")
    if module.vm_config is not None:
        yield from below("vmConfig", _check_environment(module.vm_config))


def _check_url(url: str) -> Problems:
    """Yield a problem if the URL of a module is invalid. A URL without a scheme is an image name in a registry."""
    if not url:
        yield error("missing-field", "url", "a URL is required")
        return
    try:
        parts = urlsplit(url if "://" in url else f"oci://{url}")
        has_location = bool(parts.path if parts.scheme == "file" else parts.hostname)
        number = parts.port
    except ValueError:
        yield error("bad-url", "url", f"{url!r} is not a URL")
        return
    if parts.scheme not in _SCHEMES:
        yield error("bad-url", "url", f"unknown scheme {parts.scheme!r}: expected oci, http, https or file")
    elif not has_location or number == 0 or any(c.isspace() or not c.isprintable() for c in url):
        yield error("bad-url", "url", f"{url!r} is not a URL")


def _check_environment(vm: VmConfig) -> Problems:
    names: set[str] = set()
    for index, variable in enumerate(vm.env):
        place = f"env[{index}]"
        if not variable.name:
            yield error("missing-field", f"{place}.name", "a name is required")
        elif len(variable.name) > NAME:
            yield error("too-long", f"{place}.name", f"must be at most {NAME} characters")
        elif variable.name in names:
            yield error("duplicate-name", f"{place}.name", f"duplicate {variable.name!r}")
        names.add(variable.name)
        if variable.value_from == "HOST" and variable.value:
            yield error("exclusive-fields", f"{place}.value", "a variable with valueFrom HOST cannot have a value")
        elif len(variable.value) > VALUE:
            yield error("too-long", f"{place}.value", f"must be at most {VALUE} characters")


def _check_lua(lua: LuaConfig) -> Problems:
    if not lua.inline_code:
        yield error("missing-field", "inlineCode", "a script is required")
    elif len(lua.inline_code.encode(errors="surrogatepass")) > LUA_BYTES:
        yield error("too-long", "inlineCode", f"must be at most {LUA_BYTES} bytes")


def _check_traffic(traffic: TrafficSelector) -> Problems:
    for index, port in enumerate(traffic.ports):
        yield from rules.check_port(f"ports[{index}].number", port.number)
