"""Release of clean file pages."""

from __future__ import annotations

import mmap
import pathlib

import pytest

from pilot.agent.resident_memory import clean_mappings, release_memory


def mapping(perms: str, inode: int, rss: int, anonymous: int = 0, dirty: int = 0, start: int = 0x1000) -> str:
    return (
        f"{start:x}-{start + 0x100000:x} {perms} 00000000 fe:00 {inode} {'/lib/a.so' if inode else ''}\n"
        f"Size: 1024 kB\nRss:  {rss} kB\nPrivate_Dirty: {dirty} kB\nAnonymous: {anonymous} kB\nVmFlags: rd ex\n"
    )


@pytest.mark.parametrize(
    ("text", "is_clean"),
    [
        (mapping("r-xp", 7, 1000), True),
        (mapping("r--p", 7, 1000), True),
        (mapping("rw-p", 7, 1000), False),
        (mapping("r--p", 7, 1000, anonymous=4), False),
        (mapping("r--p", 7, 1000, dirty=4), False),
        (mapping("r-xp", 0, 1000), False),
        (mapping("r-xp", 7, 100), False),
    ],
)
def test_only_clean_file_pages_are_released(text: str, is_clean: bool) -> None:
    assert list(clean_mappings(text)) == ([(0x1000, 0x100000)] if is_clean else [])


def test_released_memory_remains_readable(tmp_path: pathlib.Path) -> None:
    content = bytes(range(256)) * 4096
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[:] == content
        release_memory()
        assert mapped[:] == content
