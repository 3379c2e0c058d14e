"""The box: a running cluster, and commands on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from tests.cluster.box.addresses import NODE, NODE_NAMES
from tests.cluster.box.dns import Dns
from tests.cluster.box.images import BIN, REPOSITORY
from tests.cluster.box.kubelet import Kubelet
from tests.cluster.box.kubernetes import Kubernetes, node
from tests.cluster.box.node_api import NodeApi
from tests.cluster.box.objects import Api
from tests.cluster.box.pod_network import prepare_node
from tests.cluster.box.programs import VARIABLE
from tests.cluster.box.services import Services

Plain = dict[str, Any]


class CommandFailed(AssertionError):
    """A command that a user would run failed."""


class Box:
    """A cluster. Use it as a context manager, in namespaces of its own (`in_namespaces`)."""

    async def __aenter__(self) -> Box:
        self._started = time.monotonic()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="box-"))
        self.folder.chmod(0o755)
        subprocess.run(["mount", "-t", "tmpfs", "box", str(self.folder)], check=True)
        await asyncio.to_thread(prepare_node)  # pyroute2 runs a loop of its own
        self.kubernetes = Kubernetes(self.folder / "kubernetes")
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
        await NodeApi(self.kubelet, *certificate).start()
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

    async def command(self, *words: str, text: str = "", seconds: float = 300) -> str:
        """Return the output of a command on the node. Raise CommandFailed if it fails."""
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environ(),
            cwd=REPOSITORY,
        )
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate(text.encode())
        if process.returncode:
            raise CommandFailed(f"{' '.join(words)}: exit code {process.returncode}\n{output.decode()[-3000:]}")
        return output.decode()

    def _environ(self) -> dict[str, str]:
        path = f"{BIN}:{os.environ['PATH']}:{os.environ.get(VARIABLE, '')}"
        return {**os.environ, "KUBECONFIG": str(self.kubernetes.kubeconfig), "PATH": path, "HOME": str(self.folder)}

    @contextlib.asynccontextmanager
    async def running(self, *words: str, environ: Mapping[str, str] = {}) -> AsyncIterator[None]:
        """Run a command on the node in the background."""
        variables = {**self._environ(), **environ}
        process = await asyncio.create_subprocess_exec(*words, env=variables, stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            await process.wait()

    async def kubectl(self, *words: str, text: str = "") -> str:
        return await self.command("kubectl", *words, text=text)

    async def apply(self, *manifests: str) -> None:
        """Apply objects as kubectl does."""
        for manifest in manifests:
            await self.kubectl("apply", "--server-side", "-f", "-", text=manifest)

    async def wait_available(self, namespace: str, *names: str, seconds: int = 240) -> None:
        """Wait until all replicas of Deployments are available, at their newest version."""
        for name in names:
            await self.kubectl("rollout", "status", f"deployment/{name}", f"-n{namespace}", f"--timeout={seconds}s")

    async def objects(self, kind: str, *words: str) -> list[Plain]:
        items: list[Plain] = json.loads(await self.kubectl("get", kind, "-o", "json", *words))["items"]
        return items

    async def until(self, check: Callable[[], Any], seconds: float, what: str) -> Any:
        """Return the first true result of a check. AssertionError and OSError mean "not yet"."""
        last: BaseException | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        if result := await check():
                            return result
                    except (AssertionError, OSError) as error:
                        last = error
                    await asyncio.sleep(0.1)
        raise AssertionError(f"{what}: not within {seconds:.0f} s" + (f" (last: {last})" if last else ""))

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
