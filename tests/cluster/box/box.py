"""The box: a running cluster, and commands on it."""

from __future__ import annotations

import asyncio
import json
import pathlib
import subprocess
import tempfile
import time

from tests.cluster.box.addresses import NODE, NODE_NAMES
from tests.cluster.box.cluster import Cluster, CommandFailed
from tests.cluster.box.dns import Dns
from tests.cluster.box.kubelet import Kubelet
from tests.cluster.box.kubernetes import Kubernetes, node
from tests.cluster.box.node_api import NodeApi
from tests.cluster.box.objects import Api
from tests.cluster.box.pod_network import prepare_node
from tests.cluster.box.services import Services


class Box(Cluster):
    """A cluster on this machine. Use it as a context manager, in namespaces of its own (`in_namespaces`)."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="box-"))
        folder.chmod(0o755)
        subprocess.run(["mount", "-t", "tmpfs", "box", str(folder)], check=True)
        self.kubernetes = Kubernetes(folder / "kubernetes")
        super().__init__(self.kubernetes.kubeconfig, folder)

    async def __aenter__(self) -> Box:
        await asyncio.to_thread(prepare_node)  # pyroute2 runs a loop of its own
        self.kubernetes.start()
        self.api = Api(self.kubernetes.kubeconfig)
        self.kubelet = Kubelet(self.api, self.folder / "pods")
        self.services = Services(self.api)
        self.dns = Dns(self.services)
        await self.until(self.api.is_ready, 60, "the API server is ready")
        for name in NODE_NAMES:
            await self.api.request("POST", "/api/v1/nodes", node(name))
        self._proxy = asyncio.create_task(self.services.run())
        await self.dns.start()
        certificate = self.kubernetes.authority.issue("kubelet", (NODE, *NODE_NAMES))
        await NodeApi(self.kubelet, *certificate, self.folder / "web-sockets").start()
        await self.kubelet.start()
        return self

    def age(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._started

    async def __aexit__(self, *_: object) -> None:
        self._proxy.cancel()
        await asyncio.gather(self._proxy, return_exceptions=True)
        await self.kubelet.stop()
        await self.api.close()
        self.kubernetes.stop()

    async def describe(self) -> str:
        """Return the state of each pod, the end of the logs of containers that are not ready, and warnings."""
        lines = [f"the box failed: {failure}" for failure in self.kubelet.failures]
        if self._proxy.done():
            lines.append(f"the box failed: {self._proxy.exception()!r}")
        for runner in self.kubelet.runners.values():
            metadata = runner.pod["metadata"]
            lines.append(f"{metadata['namespace']}/{metadata['name']}: {runner.phase} {runner.reason}")
            for container in runner.containers:
                lines.append(f"  {container.name}: {json.dumps(container.state)} ready={container.ready}")
                if not container.ready:
                    lines += [f"    {line}" for line in container.tail().splitlines()[-15:]]
        warnings = await self.kubectl("get", "events", "-A", "--field-selector=type=Warning")
        return "\n".join([*lines, *warnings.splitlines()[-12:]])

    async def run_in(self, namespace: str, prefix: str, *words: str, container: str = "", seconds: float = 30) -> str:
        """Return the output of a command in a container of a pod, by default the first of its applications."""
        pod = self.kubelet.find(namespace, prefix)[0]
        chosen = next(c for c in pod.containers if c.name == container) if container else pod.main[0]
        code, output = await chosen.execute(words, seconds)
        if code:
            raise CommandFailed(f"{' '.join(words)} in {namespace}/{prefix}: exit code {code}\n{output[-3000:]}")
        return output
