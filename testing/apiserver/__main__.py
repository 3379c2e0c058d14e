"""Runs the API server as a process: python -m testing.apiserver KUBECONFIG [--bare] [FILE …]

It writes a kubeconfig for itself and serves the CustomResourceDefinitions of all kinds that a mesh reads and the
objects of the files, which are YAML or JSON lines (.jsonl). It runs until SIGTERM or SIGINT. With --bare it serves no
CustomResourceDefinitions.
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
    """Serve until a signal arrives. The kubeconfig is written once the server listens."""
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
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    write_kubeconfig(server, kubeconfig.with_suffix(".new"), certificate.data).replace(kubeconfig)
    await stopped.wait()
    await server.stop()


if __name__ == "__main__":
    paths = [pathlib.Path(word) for word in sys.argv[1:] if word != "--bare"]
    asyncio.run(serve(paths[0], paths[1:], "--bare" in sys.argv))
