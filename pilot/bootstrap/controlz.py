"""The port of ControlZ. A control plane serves proxies without it, where its address is taken."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from pilot.bootstrap.ports import HttpPort
from pilot.bootstrap.stacks import log_stacks
from pilot.controlz.application import application
from pilot.controlz.control import Control
from pilot.lib.build_info import build_info
from pilot.lib.log import scope
from pilot.lib.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.xds.address import Address

_log = scope("default")


class ControlzPort(HttpPort):
    """ControlZ on its address. `end` ends the process."""

    def __init__(self, address: Address, metrics: Metrics, end: Callable[[], object]) -> None:
        control = Control("pilot-discovery", build_info(), sys.argv, os.environ, metrics.exposition, end, log_stacks)
        super().__init__(application(control), address)
        self._address = address

    async def start(self) -> None:
        """Listens, or warns that it does not."""
        try:
            await super().start()
        except StartError as error:
            _log.warning("ControlZ is not available: %s", error)
        else:
            _log.info("ControlZ available at %s", Address(self._address.host, self.number))
