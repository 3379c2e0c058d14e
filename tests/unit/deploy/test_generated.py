"""Generated deployment files."""

from __future__ import annotations

from deploy.generated import stale_files


def test_generated_files_are_current() -> None:
    assert stale_files() == []
