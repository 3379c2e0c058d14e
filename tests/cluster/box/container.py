"""A container: a process in the pod's network, with its own file system, user, capabilities and volumes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.cluster.box.addresses import DOMAIN, NODE
from tests.cluster.box.cgroups import Cgroup
from tests.cluster.box.images import REPOSITORY, find_image
from tests.cluster.box.values import environment, expand, quantity
from tests.cluster.box.volumes import Volumes

Plain = dict[str, Any]
PROGRAMS = sorted({str(REPOSITORY), sys.prefix, sys.base_prefix})
"""The folders with the programs of images."""
LAUNCHER = pathlib.Path(__file__).with_name("launch.py")
CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "DAC_READ_SEARCH": 2,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "NET_ADMIN": 12,
    "NET_RAW": 13,
    "SYS_CHROOT": 18,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
    "MKNOD": 27,
    "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}
DEFAULT = frozenset(CAPABILITIES) - {"DAC_READ_SEARCH", "NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE"}
"""The capabilities that container runtimes give by default."""


class NotRunning(Exception):
    """The container does not run."""


class Sandbox:
    """The parts of a pod that its containers share."""

    def __init__(self, pod: Plain, folder: pathlib.Path, address: str, network: str, volumes: Volumes) -> None:
        self.pod, self.folder, self.address, self.network, self.volumes = pod, folder, address, network, volumes
        folder.mkdir(parents=True, exist_ok=True)
        namespace, name = pod["metadata"]["namespace"], pod["spec"].get("hostname") or pod["metadata"]["name"]
        zones = (f"{namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN)
        resolver = f"nameserver {NODE}\nsearch {' '.join(zones)}\noptions ndots:5\n"
        hosts = [f"127.0.0.1 localhost\n{address} {name}"]
        hosts += [f"{alias['ip']} {' '.join(alias['hostnames'])}" for alias in pod["spec"].get("hostAliases") or ()]
        (folder / "resolv.conf").write_text(resolver)
        (folder / "hosts").write_text("\n".join(hosts) + "\n")
        (folder / "temporary").mkdir()
        (folder / "temporary").chmod(0o1777)


class Container:
    """One container. `state` and `last` are as in a container's status."""

    def __init__(self, sandbox: Sandbox, plain: Plain, is_init: bool) -> None:
        self.plain, self.name, self._sandbox = plain, str(plain["name"]), sandbox
        self.is_sidecar = is_init and plain.get("restartPolicy") == "Always"
        self.state: Plain = {"waiting": {"reason": "PodInitializing"}}
        self.last: Plain = {}
        self.restarts, self.ready, self.started = 0, False, False
        self._process: asyncio.subprocess.Process | None = None
        self._folder = sandbox.folder / self.name
        self._folder.mkdir()
        self.log = self._folder / "log"
        limit = ((plain.get("resources") or {}).get("limits") or {}).get("memory")
        uid = sandbox.pod["metadata"]["uid"][:8]
        self.memory_limit = int(quantity(limit)) if limit else 0
        self.cgroup = Cgroup(f"{os.getppid()}-{uid}-{self.name}", self.memory_limit)

    async def start(self) -> None:
        """Start the process. Raise ImageNotFound or MissingReference if that is impossible now."""
        for layer in ("upper", "work"):  # a restarted container has the files of its image
            shutil.rmtree(self._folder / layer, ignore_errors=True)
        specification = self._folder / "launch.json"
        specification.write_text(json.dumps(await self._launch(self._main)))
        with self.log.open("ab") as out:
            self.log.chmod(0o666)  # any user may open /dev/stdout
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(LAUNCHER), str(specification),
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        self.state = {"running": {"startedAt": now()}}

    async def wait(self) -> int:
        """Return the exit code, and record it in the state."""
        assert self._process is not None
        code = await self._process.wait()
        code = code if code >= 0 else 128 - code
        self.cgroup.kill()
        started = self.state.get("running", {}).get("startedAt", now())
        reason = "Completed" if code == 0 else "Error"
        ended = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now()}
        self.state, self.ready, self.started = {"terminated": ended}, False, False
        return code

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def stop(self, grace: float) -> None:
        """End the process with SIGTERM, and with SIGKILL after some seconds."""
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(max(grace, 0.1)):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self.cgroup.kill()

    async def execute(self, command: Sequence[str], seconds: float) -> tuple[int, str]:
        """Run a command in the container, and return its exit code and output. The code is 124 after a timeout."""
        try:
            process = await self.spawn(command, subprocess.STDOUT)
        except NotRunning as error:
            return 137, str(error)
        try:
            async with asyncio.timeout(seconds):
                output, _ = await process.communicate()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return 124, ""
        return process.returncode or 0, output.decode(errors="replace")

    async def spawn(self, command: Sequence[str], errors: int) -> asyncio.subprocess.Process:
        """Start a command in the container. `errors` is where its standard error goes. Raise NotRunning."""
        if self._process is None or self._process.returncode is not None:
            raise NotRunning("the container does not run")
        spec = json.loads((self._folder / "launch.json").read_text())
        groups = [f"--groups={','.join(map(str, spec['groups']))}"] if spec["groups"] else ["--clear-groups"]
        inside = [
            "nsenter",
            f"--target={self._process.pid}",
            "--mount",
            "--net",
            "--uts",
            "--root",
            f"--wdns={spec['directory']}",
        ]
        process = await asyncio.create_subprocess_exec(
            *inside, "setpriv", f"--reuid={spec['user']}", f"--regid={spec['group']}", *groups, *command,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            start_new_session=True, env=spec["environment"],
        )  # fmt: skip
        with contextlib.suppress(ProcessLookupError):  # a short command has ended
            for file in self.cgroup.files:  # the command ends with the container
                pathlib.Path(file).write_text(str(process.pid))
        return process

    def tail(self) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def _main(self, variables: dict[str, str]) -> list[str]:
        image = find_image(self.plain["image"])
        command = self.plain.get("command") or image.entrypoint
        arguments = self.plain.get("args") or (() if self.plain.get("command") else image.command)
        return [expand(word, variables) for word in (*command, *arguments)]

    async def _launch(self, command: Any) -> Plain:
        """Return the specification of launch.py."""
        pod, sandbox, image = self._sandbox.pod, self._sandbox, find_image(self.plain["image"])
        variables = await environment(pod, self.plain, sandbox.address, sandbox.volumes.references)
        context = {**(pod["spec"].get("securityContext") or {}), **(self.plain.get("securityContext") or {})}
        user = context.get("runAsUser", image.user)
        if context.get("runAsNonRoot") and user == 0:
            raise ValueError(f"container {self.name} has runAsNonRoot, and its image runs as root")
        read_only = bool(context.get("readOnlyRootFilesystem"))
        changes = context.get("capabilities") or {}
        dropped = set(CAPABILITIES) if "ALL" in (changes.get("drop") or ()) else set(changes.get("drop") or ())
        capabilities = (
            set(CAPABILITIES) if context.get("privileged") else (DEFAULT - dropped) | set(changes.get("add") or ())
        )
        groups = [*(context.get("supplementalGroups") or ()), *([context["fsGroup"]] if context.get("fsGroup") else [])]
        return {
            "folder": str(self._folder),
            "network": sandbox.network,
            "programs": PROGRAMS,
            "shared": [folder for folder in PROGRAMS if os.stat(folder).st_dev != os.stat("/").st_dev],
            "mounts": [*self._system_mounts(read_only), *self._mounts()],
            "links": dict(image.files),
            "read_only": read_only,
            "capabilities": [CAPABILITIES[name] for name in capabilities],
            "groups": groups,
            "user": user,
            "group": context.get("runAsGroup", user),
            "no_new_privileges": context.get("allowPrivilegeEscalation") is False,
            "cgroups": self.cgroup.files,
            "directory": self.plain.get("workingDir") or "/",
            "command": command(variables),
            "environment": variables,
        }

    def _system_mounts(self, read_only: bool) -> list[Plain]:
        folder = self._sandbox.folder
        return [
            _mount(folder / "temporary", "/tmp", read_only),  # this machine's would be visible
            _mount(folder / "resolv.conf", "/etc/resolv.conf", True),
            _mount(folder / "hosts", "/etc/hosts", True),
        ]

    def _mounts(self) -> list[Plain]:
        mounts = []
        for mount in self.plain.get("volumeMounts") or ():
            source = self._sandbox.volumes.path(mount["name"])
            if part := mount.get("subPath"):
                source = (source / part).resolve()
                if not source.exists():
                    source.mkdir(parents=True)
            mounts.append(_mount(source, mount["mountPath"], bool(mount.get("readOnly"))))
        return sorted(mounts, key=lambda mount: str(mount["target"]))


def _mount(source: pathlib.Path, target: str, read_only: bool) -> Plain:
    return {"source": str(source), "target": target, "read_only": read_only, "file": source.is_file()}


def now() -> str:
    """Return the time as in an object's status."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
