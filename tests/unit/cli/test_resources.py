"""Resource limits at the start of a program."""

from __future__ import annotations

import resource
import tempfile

import pytest

from pilot.cli.resources import MEMORY_FOLDER, claim_resources
from pilot.lib.start_error import StartError


@pytest.mark.parametrize(
    ("files", "space", "message"),
    [
        (64, resource.RLIM_INFINITY, ""),
        (
            63,
            resource.RLIM_INFINITY,
            "only 63 files may be open at once, and each proxy needs one: allow at least 64 (ulimit -n)",
        ),
        (resource.RLIM_INFINITY, 512 << 20, ""),
        (1000, (512 << 20) - 1, "the address space is limited to 511 MB: allow at least 512 MB (ulimit -v)"),
    ],
)
def test_minimum_resource_limits(files: int, space: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_NOFILE: (files, files), resource.RLIMIT_AS: (space, space)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: pytest.fail("no limit is to be raised"))
    if message:
        with pytest.raises(StartError) as raised:
            claim_resources()
        assert str(raised.value) == message
    else:
        claim_resources()


def test_open_file_limit_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(
        resource, "getrlimit", lambda limit: (100, 5000) if limit == resource.RLIMIT_NOFILE else (-1, -1)
    )
    monkeypatch.setattr(resource, "setrlimit", lambda limit, values: calls.append((limit, values)))
    claim_resources()
    assert calls == [(resource.RLIMIT_NOFILE, (5000, 5000))]


def test_temporary_files_go_to_memory_if_all_file_systems_are_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    claim_resources()
    assert tempfile.tempdir == MEMORY_FOLDER
