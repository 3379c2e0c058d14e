"""Other clusters, from kubeconfigs in a folder: as a volume has them, which changes all its files at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import yaml

from pilot.ingest.watch import Watch
from pilot.lib.log import scope
from pilot.lib.tasks import cancel_tasks

SUFFIXES = (".yaml", ".yml")
_log = scope("secretcontroller")
Receive = Callable[[Mapping[str, Mapping[str, bytes]]], Awaitable[None]]
"""Is given all files there are, each with the cluster that it names and its text."""


class KubeconfigFolder:
    """Follows a folder. `synced` is set when what was there at the start has been received."""

    def __init__(self, path: str, receive: Receive) -> None:
        self.synced = asyncio.Event()
        self._path, self._receive = path, receive
        self._changed = asyncio.Event()
        self._watch = Watch(path, lambda _: self._changed.set(), self._changed.set)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to follow."""
        await self._watch.start()
        self._changed.set()
        self._task = asyncio.create_task(self._run(), name=f"follow kubeconfigs in {self._path}")

    async def stop(self) -> None:
        """Follows nothing any more."""
        await cancel_tasks(self._task)
        await self._watch.stop()

    async def _run(self) -> None:
        known: Mapping[str, Mapping[str, bytes]] | None = None
        while True:
            await self._changed.wait()
            self._changed.clear()
            found = await asyncio.to_thread(read_kubeconfigs, self._path)
            if found != known:
                known = found
                await self._receive(found)
            self.synced.set()


def read_kubeconfigs(folder: str) -> dict[str, dict[str, bytes]]:
    """Returns the files of a folder, with the cluster that each names; one that cannot be read names none."""
    found: dict[str, dict[str, bytes]] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if not name.endswith(SUFFIXES) or name.startswith("."):
            continue
        try:
            with open(os.path.join(folder, name), "rb") as file:
                data = file.read()
            found[name] = {cluster_of(yaml.safe_load(data)): data}
        except (OSError, ValueError, yaml.YAMLError) as fault:
            _log.error("kubeconfig %s/%s: %s", folder, name, fault)
    return found


def cluster_of(plain: Any) -> str:
    """Returns the cluster that a kubeconfig is for: that of its current context, else of its first context by name that has one, else the first
    by name. ValueError where there is none."""
    if not isinstance(plain, dict):
        raise ValueError("it is no mapping")
    contexts = {
        str(each.get("name")): (each.get("context") or {}).get("cluster") for each in plain.get("contexts") or ()
    }
    named = (contexts.get(str(plain.get("current-context"))), *(contexts[name] for name in sorted(contexts)))
    clusters = sorted(str(each["name"]) for each in plain.get("clusters") or () if each.get("name"))
    for cluster in (*named, *clusters):
        if cluster:
            return str(cluster)
    raise ValueError("it names no cluster")
