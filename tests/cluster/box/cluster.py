"""A cluster as its users see it: commands on it, with its kubeconfig."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from tests.cluster.box.images import BIN, REPOSITORY
from tests.cluster.box.programs import VARIABLE

Plain = dict[str, Any]


class CommandFailed(AssertionError):
    """A command that a user would run failed."""


class Cluster:
    """A cluster. `folder` is the home of its user."""

    def __init__(self, kubeconfig: pathlib.Path, folder: pathlib.Path) -> None:
        self.kubeconfig, self.folder = kubeconfig, folder

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
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path, "HOME": str(self.folder)}

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

    async def run_in(self, namespace: str, prefix: str, *words: str, container: str = "", seconds: float = 30) -> str:
        """Return the output of a command in a container of a Deployment, by default the first."""
        chosen = ("-c", container) if container else ()
        command = ("kubectl", "exec", f"-n{namespace}", f"deployment/{prefix}", *chosen, "--", *words)
        return await self.command(*command, seconds=seconds)
