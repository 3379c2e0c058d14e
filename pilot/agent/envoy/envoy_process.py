"""The Envoy process: its command line, startup and termination."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import signal
from collections.abc import Mapping
from typing import Any

from pilot.agent.agent_settings import AgentSettings, EnvoySettings
from pilot.agent.proxy.effective_config import parse_object
from pilot.agent.proxy.proxy_context import ProxyContext, worker_threads
from pilot.lib.logging.log import scope
from pilot.lib.start_error import StartError

BOOTSTRAP = "envoy-rev.json"
KILL_SECONDS = 5.0
"""Time in seconds between SIGTERM and SIGKILL."""
_log = scope("envoy")


def build_arguments(proxy: ProxyContext, settings: AgentSettings) -> list[str]:
    """Return Envoy's command-line arguments. Raises StartError if the bootstrap override is not readable."""
    config, envoy = proxy.config, settings.envoy
    arguments = [
        "-c",
        bootstrap_path(proxy, envoy),
        "--drain-time-s",
        str(round(config.drain_duration.seconds)),
        "--drain-strategy",
        "immediate",
    ]
    arguments += ["--local-address-ip-version", "v6" if ":" in proxy.addresses[0] else "v4"]
    arguments += [
        "--file-flush-interval-msec",
        str(round(config.file_flush_interval.seconds * 1000)) if config.file_flush_interval else "1000",
    ]
    if config.file_flush_min_size_kb:
        arguments += ["--file-flush-min-size-kb", str(config.file_flush_min_size_kb)]
    if envoy.bootstrap_override:
        arguments += ["--config-yaml", read_override(envoy.bootstrap_override, envoy.host_ip)]
    arguments += ["--disable-hot-restart", "--allow-unknown-static-fields", "-l", envoy.log_level.partition(",")[0]]
    components = envoy.log_level.partition(",")[2] or envoy.component_log_level
    arguments += ["--component-log-level", components] if components else []
    threads = worker_threads(settings, config.concurrency)
    return [*arguments, *(["--concurrency", str(threads)] if threads else [])]


def custom_bootstrap(proxy: ProxyContext, settings: EnvoySettings) -> str:
    """Return the path of the user's bootstrap, or "" if the agent generates it."""
    return settings.bootstrap or proxy.config.custom_config_file


def bootstrap_path(proxy: ProxyContext, settings: EnvoySettings) -> str:
    """Return the path of the bootstrap file: the user's file, or else the file that the agent writes."""
    return custom_bootstrap(proxy, settings) or f"{proxy.config.config_path}/{BOOTSTRAP}"


def write_bootstrap(proxy: ProxyContext, settings: EnvoySettings, bootstrap: Mapping[str, Any]) -> None:
    """Write the bootstrap unless the user provides a file. Raises StartError."""
    if custom_bootstrap(proxy, settings):
        return
    path = pathlib.Path(bootstrap_path(proxy, settings))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(bootstrap, indent=1), encoding="utf-8")
    except OSError as error:
        raise StartError(f"cannot write Envoy's bootstrap {path}: {error.strerror}") from error


def read_override(path: str, host_ip: str) -> str:
    """Return the bootstrap override in a file as JSON, with the node's address in place of $(HOST_IP).

    An IPv6 address is put in brackets unless the file has them. Raises StartError.
    """
    source = f"variable ISTIO_BOOTSTRAP_OVERRIDE: {path}"
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise StartError(f"{source}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StartError(f"{source} is not UTF-8") from error
    try:
        override = json.dumps(parse_object(source, text))
    except ValueError as error:
        raise StartError(str(error)) from error
    if ":" in host_ip:
        override, host_ip = override.replace("[$(HOST_IP)]", "$(HOST_IP)"), f"[{host_ip}]"
    return override.replace("$(HOST_IP)", host_ip)


class EnvoyProcess:
    """A running Envoy."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, program: str, arguments: list[str]) -> EnvoyProcess:
        """Start Envoy. Raises StartError."""
        try:
            process = await asyncio.create_subprocess_exec(program, *arguments, env=_environment())
        except OSError as error:
            raise StartError(
                f"cannot start Envoy: {program}: {error.strerror} (set ProxyConfig.binaryPath to its path)"
            ) from error
        _log.info("started Envoy with PID %d: %s %s", process.pid, program, " ".join(arguments))
        return cls(process)

    async def wait(self) -> int:
        """Wait until the process exits. Return its exit status, or -N if signal N ended it."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Send SIGTERM to the process, and SIGKILL if it does not exit in time."""
        for number, timeout in ((signal.SIGTERM, KILL_SECONDS), (signal.SIGKILL, None)):
            if self._process.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._process.wait(), timeout)


def _environment() -> dict[str, str]:
    """Return the environment variables, without those that configure the agent's Python and gRPC."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GRPC_"))}
