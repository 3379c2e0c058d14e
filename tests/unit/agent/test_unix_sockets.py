"""Unix sockets of the agent."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from pilot.agent.unix_sockets import build_server, is_listening, prepare_path, serve
from pilot.lib.start_error import StartError


async def test_private_socket_has_no_access_for_others(tmp_path: pathlib.Path) -> None:
    path, server = tmp_path / "folder" / "socket", build_server()
    await serve(server, str(path), private=True)
    try:
        assert path.stat().st_mode & 0o077 == 0
        assert await asyncio.to_thread(is_listening, str(path))
    finally:
        await server.stop(None)


def test_stale_socket_is_detected_and_removed(tmp_path: pathlib.Path) -> None:
    assert not is_listening(str(tmp_path / "none"))
    stale = tmp_path / "stale"
    stale.write_text("")
    assert not is_listening(str(stale))
    prepare_path(str(stale))
    assert not stale.exists()


def test_invalid_socket_path_is_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="cannot create the socket"):
        prepare_path(str(tmp_path / "file" / "socket"))
    with pytest.raises(StartError, match="is longer than 107 bytes"):
        prepare_path("/tmp/" + "x" * 120)
