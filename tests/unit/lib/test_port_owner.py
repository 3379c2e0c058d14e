"""The process that listens on a port."""

from __future__ import annotations

import os
import socket

from pilot.lib.port_owner import find_port_owner


def test_listening_process_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert find_port_owner(listener.getsockname()[1]).startswith(f"process {os.getpid()} (")


def test_free_port_has_no_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert find_port_owner(port) == ""
