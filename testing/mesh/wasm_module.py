"""A hand-assembled Wasm module for Envoy, so that tests need no compiler.

It implements version 0.2.1 of https://github.com/proxy-wasm/spec. In the text format:

    (module
      (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1)
      (data (i32.const 16) "x-wasm")
      (data (i32.const 32) VALUE)
      (func (export "proxy_abi_version_0_2_1"))
      (func (export "malloc") (param i32) (result i32) (i32.const 1024))
      (func (export "proxy_on_context_create") (param i32 i32))
      (func (export "proxy_on_vm_start") (param i32 i32) (result i32) (i32.const 1))
      (func (export "proxy_on_configure") (param i32 i32) (result i32) (i32.const 1))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (i32.const 0))        ;; or (unreachable), which traps
      (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
        (drop (call $add (i32.const 2) (i32.const 16) (i32.const 6) (i32.const 32) (i32.const LENGTH)))
        (i32.const 0)))
"""

from __future__ import annotations

from collections.abc import Iterable

HEADER = "x-wasm"
_I32, _FUNCTION, _END = b"\x7f", b"\x60", b"\x0b"
_NAME_AT, _VALUE_AT = 16, 32


def module(value: str = "added", traps: bool = False) -> bytes:
    """Return a module that adds a header to responses or, with `traps`, traps at the first request."""
    types = [((), ()), ((1, 1), ()), ((1, 1), (1,)), ((1, 1, 1), (1,)), ((1,) * 5, (1,)), ((1,), (1,))]
    add = b"".join(_const(n) for n in (2, _NAME_AT, len(HEADER), _VALUE_AT, len(value))) + b"\x10\x00\x1a"
    functions = [
        ("proxy_abi_version_0_2_1", 0, b""),
        ("malloc", 5, _const(1024)),
        ("proxy_on_context_create", 1, b""),
        ("proxy_on_vm_start", 2, _const(1)),
        ("proxy_on_configure", 2, _const(1)),
        ("proxy_on_request_headers", 3, b"\x00" if traps else _const(0)),
        ("proxy_on_response_headers", 3, add + _const(0)),
    ]
    exports = [
        _text("memory") + b"\x02\x00",
        *(_text(name) + b"\x00" + _number(i) for i, (name, _, _) in enumerate(functions, 1)),
    ]
    data = [b"\x00" + _const(at) + _END + _text(text) for at, text in ((_NAME_AT, HEADER), (_VALUE_AT, value))]
    sections = [
        (1, [_FUNCTION + _list(_I32 for _ in params) + _list(_I32 for _ in result) for params, result in types]),
        (2, [_text("env") + _text("proxy_add_header_map_value") + b"\x00\x04"]),
        (3, [_number(kind) for _, kind, _ in functions]),
        (5, [b"\x00\x01"]),
        (7, exports),
        (10, [_sized(b"\x00" + code + _END) for _, _, code in functions]),
        (11, data),
    ]
    return b"\x00asm\x01\x00\x00\x00" + b"".join(bytes((number,)) + _sized(_list(items)) for number, items in sections)


def _number(value: int) -> bytes:
    """Return the unsigned LEB128 encoding."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _const(value: int) -> bytes:
    """Return the instruction i32.const of a non-negative number, which is a signed LEB128."""
    out = bytearray()
    while value > 0x3F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return b"\x41" + bytes((*out, value))


def _sized(body: bytes) -> bytes:
    return _number(len(body)) + body


def _text(text: str) -> bytes:
    return _sized(text.encode())


def _list(items: Iterable[bytes]) -> bytes:
    entries = list(items)
    return _number(len(entries)) + b"".join(entries)
