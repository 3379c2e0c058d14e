"""Checks of all rows of a table in one test.

A separate test for each of a thousand rows would take longer to collect and report than to run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType

import pytest

MAX_REPORTED = 20


class Rows:
    """Collects the errors of rows, and fails at the end of the block.

    with Rows() as rows:
        for name, row in table:
            with rows.row(name):
                assert …
    """

    def __init__(self) -> None:
        self._count = 0
        self._errors: list[str] = []

    @contextlib.contextmanager
    def row(self, *name: object) -> Iterator[None]:
        """Check a row. Its name is part of the failure message."""
        self._count += 1
        try:
            yield
        except Exception as error:
            self._errors.append(f"{' '.join(map(str, name))}: {str(error) or type(error).__name__}")

    def __enter__(self) -> Rows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        if kind is None:
            assert self._count, "there are no rows"
            lines = self._errors[:MAX_REPORTED]
            if omitted := len(self._errors) - MAX_REPORTED:
                lines += [f"… and {omitted} more"] * (omitted > 0)
            if self._errors:
                pytest.fail("\n".join([f"{len(self._errors)} of {self._count} rows failed", *lines]), pytrace=False)
