"""The control plane under test, as a process that reads the objects of a scenario from a folder."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import Sequence

from testing.processes.process import ControlPlane
from tests.conformance.scenario import Plain, Scenario


class Server:
    """A control plane without Kubernetes. `write` replaces all of its objects at once."""

    def __init__(self, scenario: Scenario, work: pathlib.Path, ports: dict[str, int] | None = None) -> None:
        self._objects = work / "config" / "objects.yaml"
        self._objects.parent.mkdir(parents=True)
        self.write(scenario.objects)
        more: list[str] = []
        if scenario.mesh_networks:
            networks = work / "networks.yaml"
            networks.write_text(scenario.mesh_networks, "utf-8")
            more = ["--networksConfig", str(networks)]
        self.process = ControlPlane(
            work, self._objects.parent, scenario.mesh_config, more=more, environ=scenario.environ, ports=ports
        )

    async def wait_ready(self) -> None:
        await asyncio.to_thread(self.process.wait_ready)

    def write(self, objects: Sequence[Plain]) -> None:
        """Replace the objects. They are written as JSON, so that no scalar changes its type."""
        temporary = self._objects.parent.parent / "objects.new"
        temporary.write_text("\n---\n".join(json.dumps(o, default=str) for o in objects), "utf-8")
        temporary.replace(self._objects)

    async def stop(self) -> None:
        await asyncio.to_thread(self.process.stop)
