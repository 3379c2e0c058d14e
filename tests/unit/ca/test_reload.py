"""Reloading the folder of a plugged-in signer, and its log messages."""

from __future__ import annotations

import asyncio
import logging
import pathlib
from collections.abc import Callable, Iterable

import pytest

from ca.authority import Authority
from ca.plugged_in import read_plugged_in
from ca.reload import PluggedInReload
from testing.mesh.clock import VirtualClock
from testing.security.certificates import DAY, NOW, intermediate, root, write_plugged_in


class SilentWatch:
    """Watch whose notifications come from the test. Like the real one it reports missed changes at its start."""

    def __init__(
        self, folder: str, changed: Callable[[Iterable[str]], None], missed: Callable[[], None], recursive: bool
    ) -> None:
        self.changed, self.missed, self.running, self.arguments = changed, missed, False, (folder, recursive)

    async def start(self) -> None:
        self.running = True
        self.missed()

    async def stop(self) -> None:
        self.running = False


class ReloadedFolder:
    """A watched folder on a virtual clock."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.clock = folder, VirtualClock()
        monkeypatch.setattr("ca.reload.Watch", self._watch)
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", self.clock.call_later)
        material = read_plugged_in(str(folder))
        assert material is not None
        self.authority = Authority(material.signer, DAY, DAY, lambda: NOW)
        self.reload = PluggedInReload(
            str(folder), self.authority, material.crl, multiple_roots=False, on_crl=lambda: None
        )

    def _watch(
        self, folder: str, changed: Callable[[Iterable[str]], None], missed: Callable[[], None], recursive: bool
    ) -> SilentWatch:
        self.watch = SilentWatch(folder, changed, missed, recursive)
        return self.watch

    def change(self, file: str, data: bytes) -> None:
        (self.folder / file).write_bytes(data)
        self.watch.changed([str(self.folder / file)])


@pytest.fixture
async def reloaded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> ReloadedFolder:
    write_plugged_in(tmp_path, intermediate(root()))
    return ReloadedFolder(tmp_path, monkeypatch)


def files_of(folder: pathlib.Path, number: int) -> dict[str, bytes]:
    """Return the files of another intermediate with the same root."""
    folder.mkdir()
    write_plugged_in(folder, intermediate(root(), number))
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


async def test_successive_writes_are_read_once_after_the_debounce(
    reloaded: ReloadedFolder, tmp_path: pathlib.Path
) -> None:
    await reloaded.reload.start()
    assert reloaded.watch.arguments == (str(tmp_path), False)
    reloaded.clock.advance(0.1)
    before, turns = reloaded.authority.signer, reloaded.clock.turns
    for name, data in files_of(tmp_path / "new", 1).items():
        reloaded.change(name, data)
        reloaded.clock.advance(0.09)
    assert reloaded.authority.signer is before
    reloaded.clock.advance(0.01)
    assert reloaded.authority.signer.certificate == intermediate_of(reloaded)
    assert (reloaded.clock.turns - turns, reloaded.clock.waiting) == (1, 0)


def intermediate_of(reloaded: ReloadedFolder) -> object:
    """Return the certificate currently in the folder."""
    material = read_plugged_in(str(reloaded.folder))
    assert material is not None
    return material.signer.certificate


async def test_changes_before_the_start_are_loaded(reloaded: ReloadedFolder, tmp_path: pathlib.Path) -> None:
    write_plugged_in(tmp_path, intermediate(root(), 1))
    await reloaded.reload.start()
    reloaded.clock.advance(0.1)
    assert reloaded.authority.signer.certificate == intermediate_of(reloaded)


async def test_stop_cancels_pending_reloads(reloaded: ReloadedFolder) -> None:
    await reloaded.reload.start()
    reloaded.change("ca-key.pem", b"")
    await reloaded.reload.stop()
    assert (reloaded.clock.waiting, reloaded.watch.running) == (0, False)
    await reloaded.reload.stop()  # a second stop is harmless


async def test_log_messages_of_loaded_and_rejected_certificates(
    reloaded: ReloadedFolder, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot.ca")
    reloaded.reload.reload()
    assert caplog.messages == []  # the certificate has not changed
    write_plugged_in(tmp_path, intermediate(root(), 1))
    reloaded.reload.reload()
    (tmp_path / "ca-key.pem").unlink()
    reloaded.reload.reload()
    for path in tmp_path.iterdir():
        path.unlink()
    reloaded.reload.reload()
    write_plugged_in(tmp_path, intermediate(root(1), 1))
    reloaded.reload.reload()
    prefix = "cannot reload the signing certificate, keeping the current one: "
    assert caplog.record_tuples == [
        (
            "pilot.ca",
            logging.INFO,
            f"loaded the signing certificate from {tmp_path}, valid until 2026-01-12 03:04:05+00:00",
        ),
        (
            "pilot.ca",
            logging.ERROR,
            f"{prefix}{tmp_path}: missing ca-key.pem (found ca-cert.pem, root-cert.pem, cert-chain.pem)",
        ),
        ("pilot.ca", logging.ERROR, f"{prefix}{tmp_path}: the signing certificate has been removed"),
        (
            "pilot.ca",
            logging.ERROR,
            f"{prefix}the root certificates have changed; that requires a restart, or support for multiple roots",
        ),
    ]
