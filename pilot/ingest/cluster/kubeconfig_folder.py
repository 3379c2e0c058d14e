"""Watches a folder that contains kubeconfigs of remote clusters, such as a mounted volume."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import yaml

from pilot.ingest.files.watch import Watch
from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks

SUFFIXES = (".yaml", ".yml")
_log = scope("secretcontroller")
Receive = Callable[[Mapping[str, Mapping[str, bytes]]], Awaitable[None]]
"""Callback whose argument maps each file name to the file's cluster and content."""


class KubeconfigFolder:
    """Watches a folder of kubeconfigs. `synced` is set once the existing files have been received."""

    def __init__(self, path: str, receive: Receive) -> None:
        self.synced = asyncio.Event()
        self._path, self._receive = path, receive
        self._changed = asyncio.Event()
        self._watch = Watch(path, lambda _: self._changed.set(), self._changed.set)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start watching."""
        await self._watch.start()
        self._changed.set()
        self._task = asyncio.create_task(self._run(), name=f"watch kubeconfigs in {self._path}")

    async def stop(self) -> None:
        """Stop watching."""
        await cancel_tasks(self._task)
        await self._watch.stop()

    async def _run(self) -> None:
        previous: Mapping[str, Mapping[str, bytes]] | None = None
        while True:
            await self._changed.wait()
            self._changed.clear()
            kubeconfigs = await asyncio.to_thread(read_kubeconfigs, self._path)
            if kubeconfigs != previous:
                previous = kubeconfigs
                await self._receive(kubeconfigs)
            self.synced.set()


def read_kubeconfigs(folder: str) -> dict[str, dict[str, bytes]]:
    """Return a mapping from the name of each kubeconfig in a folder to its cluster and content.

    Invalid files are logged and skipped.
    """
    kubeconfigs: dict[str, dict[str, bytes]] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if not name.endswith(SUFFIXES) or name.startswith("."):
            continue
        try:
            with open(os.path.join(folder, name), "rb") as file:
                data = file.read()
            kubeconfigs[name] = {cluster_of(yaml.safe_load(data)): data}
        except (OSError, ValueError, yaml.YAMLError) as fault:
            _log.error("cannot read the kubeconfig %s/%s: %s", folder, name, fault)
    return kubeconfigs


def cluster_of(plain: Any) -> str:
    """Return the name of the cluster in a kubeconfig. Raise ValueError if the kubeconfig contains no cluster.

    The result is the cluster of the current context. If that context has no cluster, the cluster of the first context
    with a cluster is returned. If there is no such context, the first cluster is returned. Contexts and clusters are
    ordered by name.
    """
    if not isinstance(plain, dict):
        raise ValueError("it is not a mapping")
    contexts = {
        str(each.get("name")): (each.get("context") or {}).get("cluster") for each in plain.get("contexts") or ()
    }
    candidates = (contexts.get(str(plain.get("current-context"))), *(contexts[name] for name in sorted(contexts)))
    clusters = sorted(str(each["name"]) for each in plain.get("clusters") or () if each.get("name"))
    for cluster in (*candidates, *clusters):
        if cluster:
            return str(cluster)
    raise ValueError("it contains no cluster")
