"""Runs a control plane on an API server that holds what a folder holds: python -m testing.apiserver.folder COMMAND … --configDir FOLDER …

The command is started with `--kubeconfig` in place of `--configDir`. Files that change, come and go are objects that do; a scenario that is
written for a folder needs nothing else to run on an API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
import sys
import tempfile
import traceback
from typing import Any, NamedTuple

import yaml

from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.apiserver.tls import make_certificate
from testing.kube.kube_access import write_kubeconfig

PAUSE = 0.02
Plain = dict[str, Any]
Identity = tuple[str, str, str, str]
"""Group, kind, namespace and name."""
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Arguments(NamedTuple):
    """A command without its folder, and the folder."""

    command: list[str]
    folder: pathlib.Path


def read_arguments(words: list[str]) -> Arguments:
    """Return what is started, and on which folder."""
    at = words.index("--configDir")
    return Arguments(words[:at] + words[at + 2 :], pathlib.Path(words[at + 1]))


class Folder:
    """The objects of a folder's files. `load` puts those that changed since the last time into the server, and takes those that are gone."""

    def __init__(self, path: pathlib.Path, server: ApiServer) -> None:
        self._path, self._server = path, server
        self._seen: dict[pathlib.Path, tuple[int, int, int]] = {}
        self._there: dict[Identity, Plain] = {}

    def load(self) -> bool:
        """Return whether any file was another than before."""
        seen = {}
        for file in sorted(self._path.rglob("*.y*ml")):
            with contextlib.suppress(FileNotFoundError):
                told = file.stat()
                seen[file] = told.st_mtime_ns, told.st_size, told.st_ino
        if seen == self._seen:
            return False
        there = {
            _identity(plain): plain for file in seen for plain in yaml.load_all(file.read_bytes(), _Loader) if plain
        }
        for identity, plain in self._there.items():
            if identity not in there:
                self._server.remove(plain)
        for identity, plain in there.items():
            if self._there.get(identity) != plain:
                self._server.put(plain)
        self._seen, self._there = seen, there
        return True

    async def follow(self) -> None:
        """Load what changes until it is cancelled; what cannot be read is told of on the standard error."""
        while True:
            await asyncio.sleep(PAUSE)
            try:
                self.load()
            except (ValueError, LookupError, yaml.YAMLError):
                traceback.print_exc()


def _identity(plain: Plain) -> Identity:
    metadata = plain["metadata"]
    return str(plain["apiVersion"]).rpartition("/")[0], plain["kind"], metadata.get("namespace", ""), metadata["name"]


async def run(given: Arguments) -> int:
    """Return the exit status of the command, which ends at SIGTERM and SIGINT."""
    certificate = make_certificate()  # clients send no tokens without TLS
    with tempfile.TemporaryDirectory() as place:
        server = ApiServer(tls=certificate.context(pathlib.Path(place)))
        for plain in definitions():
            server.put(plain)
        folder = Folder(given.folder, server)
        folder.load()
        await server.start()
        kubeconfig = write_kubeconfig(server, pathlib.Path(place) / "config", certificate.data)
        process = await asyncio.create_subprocess_exec(*given.command, "--kubeconfig", str(kubeconfig))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, process.terminate)
        follows = asyncio.create_task(folder.follow())
        try:
            return await process.wait()
        finally:
            follows.cancel()
            await server.stop()


if __name__ == "__main__":
    sys.exit(asyncio.run(run(read_arguments(sys.argv[1:]))))
