"""Runs the containers of an injected pod as a kubelet does, with their arguments, variables, volumes and capabilities,
in the pod's network.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from testing.processes.container import apply_security_context
from testing.processes.netns import Host
from testing.processes.process import Process

Plain = dict[str, Any]
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
INIT_SECONDS = 60


class Kubelet:
    """Runs one pod.

    `files` maps paths in mounted volumes to their content. `stop` ends all containers.
    """

    def __init__(self, pod: Plain, host: Host, ip: str, files: Mapping[str, bytes]) -> None:
        self.pod, self._host, self._ip = pod, host, ip
        self.root = pathlib.Path(tempfile.mkdtemp())  # pytest's folders are only accessible to root
        self.root.chmod(0o755)
        self._files = {
            **files,
            "/etc/istio/pod/labels": self._downward("labels"),
            "/etc/istio/pod/annotations": self._downward("annotations"),
        }
        self.started: dict[str, Process] = {}

    def run_init(self) -> None:
        """Run the init containers in order. Raise RuntimeError if one fails."""
        for container in self.pod["spec"]["initContainers"]:
            result = subprocess.run(
                self._command(container),
                env=self._environ(container),
                cwd=self._make_root(container),
                preexec_fn=self._enter(container),
                capture_output=True,
                text=True,
                timeout=INIT_SECONDS,
                check=False,
            )
            if result.returncode:
                raise RuntimeError(
                    f"{container['name']} exited with status {result.returncode}:\n{result.stdout}{result.stderr}"
                )

    def start(self, name: str) -> Process:
        """Start a container."""
        container = next(c for c in self.pod["spec"]["containers"] if c["name"] == name)
        folder = self._make_root(container)
        process = Process(
            self._command(container),
            self.root / f"{name}.log",
            self._enter(container),
            self._environ(container),
            folder,
        )
        self.started[name] = process
        return process

    def stop(self) -> None:
        for process in self.started.values():
            process.stop()
        shutil.rmtree(self.root)

    def _enter(self, container: Plain) -> Callable[[], None]:
        def enter() -> None:
            self._host.join()
            apply_security_context(container["securityContext"])

        return enter

    def _command(self, container: Plain) -> list[str]:
        """Return the command of a container of the proxy image, whose entrypoint is pilot-agent."""
        variables = self._environ(container)
        arguments = [re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], word) for word in container["args"]]
        return [sys.executable, "-m", "pilot.cli.pilot_agent", *arguments]

    def _environ(self, container: Plain) -> dict[str, str]:
        base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}
        return base | {variable["name"]: self._value(variable, container) for variable in container.get("env", ())}

    def _value(self, variable: Plain, container: Plain) -> str:
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            return self._field(source["fieldRef"]["fieldPath"])
        if "resourceFieldRef" in source:
            kind, _, resource = source["resourceFieldRef"]["resource"].partition(".")
            amount = str(container["resources"][kind][resource])
            return str(int(amount.removesuffix("Gi")) * 2**30) if amount.endswith("Gi") else amount
        return str(variable.get("value", ""))

    def _field(self, path: str) -> str:
        spec, metadata = self.pod["spec"], self.pod["metadata"]
        fields = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
            "status.podIP": self._ip,
            "status.hostIP": self._ip,
            "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
            "spec.nodeName": "node",
        }
        value: str = fields[path]
        return value

    def _downward(self, field: str) -> bytes:
        return "".join(
            f'{key}="{value.translate(_ESCAPES)}"\n' for key, value in self.pod["metadata"].get(field, {}).items()
        ).encode()

    def _make_root(self, container: Plain) -> pathlib.Path:
        """Create the folder that stands for the container's file system.

        Only its volumes are writable for the container.
        """
        folder = self.root / container["name"]
        folder.mkdir()
        context = container["securityContext"]
        for mount in container.get("volumeMounts", ()):
            volume = folder / mount["mountPath"].lstrip("/")
            volume.mkdir(parents=True)
            os.chown(volume, context["runAsUser"], context["runAsGroup"])
        for path, content in self._files.items():
            file = folder / path.lstrip("/")
            if file.parent.exists():
                file.write_bytes(content)
        return folder


_ESCAPES = str.maketrans({'"': '\\"', "\n": "\\n", "\\": "\\\\"})
