"""Commands in containers, with the streams of a client over SPDY."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Mapping, Sequence

from testing.apiserver.spdy import Data, Ping, SpdyConnection, StreamOpened
from tests.cluster.box.container import Container

PROTOCOL = "v4.channel.k8s.io"
"""The protocol in which the stream `error` ends with a Status that has the exit code."""


async def serve_command(
    container: Container,
    query: Mapping[str, Sequence[str]],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Wait for the streams of the client, run its command, and send the output and the exit code. Input is ignored."""
    frames, streams = SpdyConnection(), dict[str, int]()
    expected = {"error"} | {kind for kind, flag in _STREAMS.items() if flag in query}
    while streams.keys() != expected:
        if not (data := await reader.read(1 << 16)):
            return
        for event in frames.receive(data):
            match event:
                case StreamOpened(stream, headers):
                    streams[headers["streamtype"]] = stream
                    writer.write(frames.reply(stream))
                case Ping(frame):
                    writer.write(frame)
                case Data():
                    pass
    process = await container.spawn(query["command"], subprocess.PIPE)
    output, errors = await process.communicate()
    for kind, content in (("stdout", output), ("stderr", errors), ("error", _status(process.returncode or 0))):
        if kind in streams:
            writer.write(frames.data(streams[kind], content, ended=True))
    await writer.drain()
    await reader.read(1 << 16)  # the client closes the connection when it has read all


_STREAMS = {"stdin": "input", "stdout": "output", "stderr": "error"}
"""The parameters that ask for streams."""


def _status(code: int) -> bytes:
    if code == 0:
        return json.dumps({"metadata": {}, "status": "Success"}).encode()
    causes = [{"reason": "ExitCode", "message": str(code)}]
    failure = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps({"metadata": {}, **failure, "message": f"command terminated with exit code {code}"}).encode()
