"""Responses written to Envoy."""

from __future__ import annotations

import asyncio
from typing import Any

from envoy.config.core.v3 import extension_pb2
from envoy.service.discovery.v3 import discovery_pb2

from pilot.agent.wasm.extension_stream import ExtensionStream, Outcome
from pilot.agent.xds.downstream_writer import DownstreamWriter
from pilot.lib.xds_types import EXTENSION


class RewriteOnSecondAttempt:
    """Rewrites a resource on the second attempt."""

    def __init__(self) -> None:
        self.attempts = 0

    def rewrite(self, packed: Any) -> Outcome:
        self.attempts += 1
        packed.value = extension_pb2.TypedExtensionConfig(name=f"r{self.attempts}").SerializeToString()
        return "rewritten" if self.attempts == 2 else "pending"


async def test_pending_module_is_written_once_available() -> None:
    writes = asyncio.Queue[bytes]()

    class Envoy:
        async def write(self, raw: bytes) -> None:
            writes.put_nowait(raw)

    response = discovery_pb2.DiscoveryResponse(type_url=EXTENSION, nonce="n", version_info="v")
    response.resources.add().Pack(extension_pb2.TypedExtensionConfig(name="r"))
    writer = DownstreamWriter(Envoy(), ExtensionStream(RewriteOnSecondAttempt(), delta=False), (0.001, 0.002))
    try:
        await writer.write(response.SerializeToString())
        responses = [
            discovery_pb2.DiscoveryResponse.FromString(await asyncio.wait_for(writes.get(), 20)) for _ in range(2)
        ]
    finally:
        writer.close()
    assert [extension_pb2.TypedExtensionConfig.FromString(item.resources[0].value).name for item in responses] == [
        "r1",
        "r2",
    ]
    assert {(item.nonce, item.version_info, item.type_url) for item in responses} == {("n", "v", EXTENSION)}
