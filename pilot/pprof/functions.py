"""Finds the function that contains a line of a file, because tracemalloc records only lines."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from types import CodeType


def function_at(file: str, line: int) -> str:
    """Return the innermost function that contains a line, such as "Class.method".

    Return "<module>" if the line is outside functions or the file does not exist.
    """
    return _functions_of(file).get(line, "<module>")


@functools.lru_cache(1000)
def _functions_of(file: str) -> Mapping[int, str]:
    """Return a mapping from the lines of a file to functions. It is built from the compiled code."""
    try:
        code = SourceFileLoader("__main__", file).get_code("__main__")
    except (OSError, ImportError, SyntaxError, ValueError, RecursionError):
        return {}
    return dict(_lines_of(code, "")) if code else {}


def _lines_of(outer: CodeType, around: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their functions, outer functions first. A comprehension or lambda belongs to its enclosing
    function."""
    for code in outer.co_consts:
        if isinstance(code, CodeType):
            is_named = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
            name = code.co_qualname.replace(".<locals>", "") if is_named else around
            yield from ((line, name) for _, _, line in code.co_lines() if line and name)
            yield from _lines_of(code, name)
