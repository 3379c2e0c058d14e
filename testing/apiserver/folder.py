"""Runs a control plane against an API server that mirrors a folder.

Usage: python -m testing.apiserver.folder COMMAND … --configDir FOLDER …

The command is started with `--kubeconfig` in place of `--configDir`. Objects are created, updated and deleted as the
files change, so a scenario that is written for a folder also runs on an API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
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
    """A command without its --configDir flag, and that folder."""

    command: list[str]
    folder: pathlib.Path


def read_arguments(words: list[str]) -> Arguments:
    """Return the command to start and its folder."""
    index = words.index("--configDir")
    return Arguments(words[:index] + words[index + 2 :], pathlib.Path(words[index + 1]))


class Folder:
    """The objects in a folder's files. `load` writes the difference since the last load to the server."""

    def __init__(self, path: pathlib.Path, server: ApiServer) -> None:
        self._path, self._server = path, server
        self._stats: dict[pathlib.Path, tuple[int, int, int]] = {}
        self._parsed: dict[pathlib.Path, list[Plain]] = {}
        self._objects: dict[Identity, Plain] = {}

    def load(self) -> bool:
        """Write changed objects to the server, and return whether any file changed."""
        stats = {}
        for file in sorted((*self._path.rglob("*.y*ml"), *self._path.rglob("*.json"))):
            with contextlib.suppress(FileNotFoundError):
                stat = file.stat()
                stats[file] = stat.st_mtime_ns, stat.st_size, stat.st_ino
        if stats == self._stats:
            return False
        self._parsed = {
            file: self._parsed[file] if stat == self._stats.get(file) else _parse(file.read_bytes())
            for file, stat in stats.items()
        }
        objects = {_identity(plain): plain for parsed in self._parsed.values() for plain in parsed}
        for identity, plain in self._objects.items():
            if identity not in objects:
                self._server.remove(plain)
        for identity, plain in objects.items():
            if self._objects.get(identity) != plain:
                self._server.put(plain)
        self._stats, self._objects = stats, objects
        return True

    async def watch(self) -> None:
        """Load changes until cancelled. Errors are printed on standard error."""
        while True:
            await asyncio.sleep(PAUSE)
            try:
                self.load()
            except (ValueError, LookupError, yaml.YAMLError):
                traceback.print_exc()


def _parse(data: bytes) -> list[Plain]:
    """Return the objects in a file of YAML, or of JSON, which takes a hundredth of the time."""
    try:
        documents = [json.loads(data)]
    except ValueError:
        documents = [plain for plain in yaml.load_all(data, _Loader) if plain]
    return [plain for document in documents for plain in (document["items"] if _is_list(document) else (document,))]


def _is_list(document: Plain) -> bool:
    return document.get("apiVersion") == "v1" and document.get("kind") == "List"


def _identity(plain: Plain) -> Identity:
    metadata = plain["metadata"]
    return str(plain["apiVersion"]).rpartition("/")[0], plain["kind"], metadata.get("namespace", ""), metadata["name"]


async def run(arguments: Arguments) -> int:
    """Run the command until it exits, and return its exit status. SIGTERM and SIGINT are passed to it."""
    certificate = make_certificate()  # clients send no tokens without TLS
    with tempfile.TemporaryDirectory() as directory:
        server = ApiServer(tls=certificate.context(pathlib.Path(directory)))
        for plain in definitions():
            server.put(plain)
        folder = Folder(arguments.folder, server)
        folder.load()
        await server.start()
        kubeconfig = write_kubeconfig(server, pathlib.Path(directory) / "config", certificate.data)
        process = await asyncio.create_subprocess_exec(*arguments.command, "--kubeconfig", str(kubeconfig))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, process.terminate)
        watcher = asyncio.create_task(folder.watch())
        try:
            return await process.wait()
        finally:
            watcher.cancel()
            await server.stop()


if __name__ == "__main__":
    sys.exit(asyncio.run(run(read_arguments(sys.argv[1:]))))
