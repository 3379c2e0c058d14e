"""Runs the API server as a process: python -m testing.apiserver KUBECONFIG [--bare] [FILE …]

It writes a kubeconfig for itself, serves the definitions of all kinds that a mesh reads and the objects of the files, which are YAML or
lines of JSON (.jsonl), and goes on until SIGTERM or SIGINT. With --bare it serves no definitions of its own.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import signal
import sys
import tempfile

from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.apiserver.tls import make_certificate
from testing.kube.kube_access import write_kubeconfig


async def serve(kubeconfig: pathlib.Path, files: list[pathlib.Path], bare: bool = False) -> None:
    """Serve until a signal. The kubeconfig is there when the server listens."""
    certificate = make_certificate()  # clients send no tokens without TLS
    with tempfile.TemporaryDirectory() as folder:
        server = ApiServer(tls=certificate.context(pathlib.Path(folder)))
    for plain in () if bare else definitions():
        server.put(plain)
    for file in files:
        if file.suffix == ".jsonl":
            for line in file.read_text().splitlines():
                server.put(json.loads(line))
        else:
            server.apply(file.read_text())
    await server.start()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    write_kubeconfig(server, kubeconfig.with_suffix(".new"), certificate.data).replace(kubeconfig)
    await ended.wait()
    await server.stop()


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--bare"]
    asyncio.run(serve(pathlib.Path(given[0]), [pathlib.Path(name) for name in given[1:]], "--bare" in sys.argv))
