"""A folder of configuration files that is read into a mesh, with a virtual clock."""

from __future__ import annotations

import pathlib
from typing import Any

from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.object import Object, RegistryKey
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.files.file_source import FileSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.mesh.clock import VirtualClock


def service(name: str, port: int = 80, namespace: str = "shop") -> str:
    """Return the YAML of a Service."""
    return f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{ports: [{{port: {port}}}]}}\n"


class ConfigFolder:
    """A folder and the mesh that it is read into.

    `notify` stands for the kernel's file notifications; `settle` lets the debounce time pass.
    """

    def __init__(self, folder: pathlib.Path, **options: Any) -> None:
        self.folder, self.mesh, self.problems, self.clock = folder, Mesh(), ProblemStore(lambda _: None), VirtualClock()
        self.commits: list[Commit] = []
        self.batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), self.commits.append)
        self.source = FileSource(str(folder), self.batch, Ledger(self.problems).source(0, "files"), **options)
        self.source.load_initial()
        self.batch.flush()

    def write(self, name: str, text: str) -> pathlib.Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def notify(self, *names: str) -> None:
        self.source.changed([str(self.folder / name) for name in names])
        self.settle()

    def settle(self) -> None:
        self.clock.advance(0.2)

    @property
    def services(self) -> dict[str, int]:
        """Return the port of each service, by name."""
        return {key.name: o.spec.ports[0].port for key, o in SERVICE.table(self.mesh).rows()}

    @property
    def codes(self) -> list[str]:
        return [problem.code for problem in self.problems]

    def row(self, name: str, namespace: str = "shop") -> Object[Any] | None:
        return SERVICE.table(self.mesh).peek(RegistryKey("Kubernetes", namespace, name))
