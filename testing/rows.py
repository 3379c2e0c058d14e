"""Tables whose rows are checked in one test.

A test of its own for each of a thousand rows takes longer to collect and to report than to run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType

import pytest

SHOWN = 20


class Rows:
    """Collects the errors of rows, and fails when the block ends.

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
        """Check a row, whose name is in the message if it fails."""
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
            shown = self._errors[:SHOWN]
            if more := len(self._errors) - SHOWN:
                shown += [f"… and {more} more"] * (more > 0)
            if self._errors:
                pytest.fail("\n".join([f"{len(self._errors)} of {self._count} rows failed", *shown]), pytrace=False)
