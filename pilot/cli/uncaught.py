"""Reports exceptions that no command handles in one line, instead of with a traceback."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any

VARIABLE = "PILOT_TRACEBACK"
"""Name of the variable that makes Python print tracebacks, for reports of bugs."""


def install() -> None:
    """Handle the exceptions that nothing else handles in this process."""
    if not os.environ.get(VARIABLE):
        sys.excepthook = report
        sys.unraisablehook = _report_unraisable


def report(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print an exception in one line. Print nothing after Ctrl-C."""
    if not issubclass(kind, KeyboardInterrupt):
        print(f"Error: {describe(error, traceback)}", file=sys.stderr)


def describe(error: BaseException, traceback: TracebackType | None) -> str:
    """Return the message for an exception that no command handles."""
    if isinstance(error, ModuleNotFoundError):
        extra = "'pyistiod[kubernetes]'" if str(error.name).partition(".")[0] == "kubernetes" else "pyistiod"
        return f"the Python package {error.name} is missing; install all dependencies: pip install {extra}"
    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return (
        f"internal error: {text}{_place(traceback)}; this is a bug, please report it ({VARIABLE}=1 prints the details)"
    )


def _place(traceback: TracebackType | None) -> str:
    """Return the place where an exception was raised."""
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    folder, name = os.path.split(code.co_filename)
    return f" in {os.path.join(os.path.basename(folder), name)}:{traceback.tb_lineno}"


def _report_unraisable(unraisable: Any) -> None:
    """Ignore Ctrl-C while the process ends, and report other exceptions that cannot be raised as Python does."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
