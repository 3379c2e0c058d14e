"""The Envoy beside the agent: its command line, its life and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import signal
from collections.abc import Mapping
from typing import Any

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.proxy.proxy_context import ProxyContext, workers
from pilot.lib.log import scope
from pilot.lib.start_error import StartError

BOOTSTRAP = "envoy-rev.json"
KILL_SECONDS = 5.0
"""Time that Envoy has to end after SIGTERM."""
_log = scope("envoy")


def build_arguments(facts: ProxyContext, settings: AgentSettings) -> list[str]:
    """Returns Envoy's arguments, without the program."""
    config, envoy = facts.proxy.config, settings.envoy
    found = [
        "-c",
        bootstrap_path(facts),
        "--drain-time-s",
        str(round(config.drain_duration.seconds)),
        "--drain-strategy",
        "immediate",
    ]
    found += ["--local-address-ip-version", "v6" if ":" in facts.addresses[0] else "v4"]
    found += [
        "--file-flush-interval-msec",
        str(round(config.file_flush_interval.seconds * 1000)) if config.file_flush_interval else "1000",
    ]
    found += ["--disable-hot-restart", "--allow-unknown-static-fields", "-l", envoy.log_level.partition(",")[0]]
    components = envoy.log_level.partition(",")[2] or envoy.component_log_level
    found += ["--component-log-level", components] if components else []
    threads = workers(settings, config.concurrency)
    return [*found, *(["--concurrency", str(threads)] if threads else [])]


def bootstrap_path(facts: ProxyContext) -> str:
    """Returns where the bootstrap is: the file that a user made, or that of the agent."""
    config = facts.proxy.config
    return config.custom_config_file or f"{config.config_path}/{BOOTSTRAP}"


def write_bootstrap(facts: ProxyContext, bootstrap: Mapping[str, Any]) -> None:
    """Writes the bootstrap, unless the user has one. StartError where it cannot be written."""
    if facts.proxy.config.custom_config_file:
        return
    path = pathlib.Path(bootstrap_path(facts))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(bootstrap, indent=1), encoding="utf-8")
    except OSError as error:
        raise StartError(f"the bootstrap {path} cannot be written: {error.strerror}") from error


class Envoy:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, program: str, arguments: list[str]) -> Envoy:
        """Starts the program. StartError where it cannot be started."""
        try:
            process = await asyncio.create_subprocess_exec(program, *arguments, env=_environment())
        except OSError as error:
            raise StartError(
                f"Envoy cannot be started: {program}: {error.strerror}; ProxyConfig.binaryPath says where it is"
            ) from error
        _log.info("Envoy runs as process %d: %s %s", process.pid, program, " ".join(arguments))
        return cls(process)

    async def wait(self) -> int:
        """Returns the exit status, the negative number of a signal where that ended it."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Ends the process, with SIGTERM and, where that takes too long, with SIGKILL."""
        for number, seconds in ((signal.SIGTERM, KILL_SECONDS), (signal.SIGKILL, None)):
            if self._process.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._process.wait(), seconds)


def _environment() -> dict[str, str]:
    """Returns the environment without what is meant for the agent's own Python."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GRPC_"))}
