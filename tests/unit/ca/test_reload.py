"""When the folder of a plugged-in signer is read again, and what the log says of it."""

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
    """Reports what a test says, and at its start that anything may have changed before, as the kernel's does."""

    def __init__(
        self, folder: str, changed: Callable[[Iterable[str]], None], missed: Callable[[], None], recursive: bool
    ) -> None:
        self.changed, self.missed, self.running, self.what = changed, missed, False, (folder, recursive)

    async def start(self) -> None:
        self.running = True
        self.missed()

    async def stop(self) -> None:
        self.running = False


class Live:
    """A folder that is followed on a clock that stands still."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.clock = folder, VirtualClock()
        monkeypatch.setattr("ca.reload.Watch", self._watch)
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", self.clock.call_later)
        found = read_plugged_in(str(folder))
        assert found is not None
        self.authority = Authority(found.signer, DAY, DAY, lambda: NOW)
        self.reload = PluggedInReload(str(folder), self.authority, found.crl, multiple_roots=False, on_crl=lambda: None)

    def _watch(
        self, folder: str, changed: Callable[[Iterable[str]], None], missed: Callable[[], None], recursive: bool
    ) -> SilentWatch:
        self.watch = SilentWatch(folder, changed, missed, recursive)
        return self.watch

    def change(self, file: str, data: bytes) -> None:
        (self.folder / file).write_bytes(data)
        self.watch.changed([str(self.folder / file)])


@pytest.fixture
async def live(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Live:
    write_plugged_in(tmp_path, intermediate(root()))
    return Live(tmp_path, monkeypatch)


def files_of(folder: pathlib.Path, number: int) -> dict[str, bytes]:
    """The files of another intermediate of the same root."""
    folder.mkdir()
    write_plugged_in(folder, intermediate(root(), number))
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


async def test_files_that_are_written_one_after_the_other_are_read_once_they_rest(
    live: Live, tmp_path: pathlib.Path
) -> None:
    await live.reload.start()
    assert live.watch.what == (str(tmp_path), False)
    live.clock.advance(0.1)
    before, looked = live.authority.signer, live.clock.turns
    for name, data in files_of(tmp_path / "new", 1).items():
        live.change(name, data)
        live.clock.advance(0.09)
    assert live.authority.signer is before
    live.clock.advance(0.01)
    assert live.authority.signer.certificate == intermediate_of(live)
    assert (live.clock.turns - looked, live.clock.waiting) == (1, 0)


def intermediate_of(live: Live) -> object:
    """The certificate that the folder holds now."""
    found = read_plugged_in(str(live.folder))
    assert found is not None
    return found.signer.certificate


async def test_what_changed_since_the_folder_was_read_is_seen_at_the_start(live: Live, tmp_path: pathlib.Path) -> None:
    write_plugged_in(tmp_path, intermediate(root(), 1))
    await live.reload.start()
    live.clock.advance(0.1)
    assert live.authority.signer.certificate == intermediate_of(live)


async def test_nothing_is_read_after_the_end(live: Live) -> None:
    await live.reload.start()
    live.change("ca-key.pem", b"")
    await live.reload.stop()
    assert (live.clock.waiting, live.watch.running) == (0, False)
    await live.reload.stop()  # nothing waits, and nothing runs


async def test_the_log_says_which_certificate_is_taken_and_why_one_is_not(
    live: Live, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot.ca")
    live.reload.reload()
    assert caplog.messages == []  # it is the same one
    write_plugged_in(tmp_path, intermediate(root(), 1))
    live.reload.reload()
    (tmp_path / "ca-key.pem").unlink()
    live.reload.reload()
    for path in tmp_path.iterdir():
        path.unlink()
    live.reload.reload()
    write_plugged_in(tmp_path, intermediate(root(1), 1))
    live.reload.reload()
    stays = "keeping the current signing certificate: "
    assert caplog.record_tuples == [
        (
            "pilot.ca",
            logging.INFO,
            f"loaded the signing certificate from {tmp_path}, valid until 2026-01-12 03:04:05+00:00",
        ),
        (
            "pilot.ca",
            logging.ERROR,
            f"{stays}{tmp_path}: missing ca-key.pem (found ca-cert.pem, root-cert.pem, cert-chain.pem)",
        ),
        ("pilot.ca", logging.ERROR, f"{stays}{tmp_path}: the signing certificate has been removed"),
        (
            "pilot.ca",
            logging.ERROR,
            f"{stays}the root certificates have changed; that requires a restart, or support for multiple roots",
        ),
    ]
