"""Which function a line of a file is in: tracemalloc knows lines alone."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from types import CodeType


def function_at(file: str, line: int) -> str:
    """Returns the innermost function or method of a line, as "Class.method"; "<module>" outside of all, or where the file cannot be read."""
    return _functions_of(file).get(line, "<module>")


@functools.lru_cache(1000)
def _functions_of(file: str) -> Mapping[int, str]:
    """Returns the functions of a file by line. They are taken from what the interpreter has compiled of it, not parsed again."""
    try:
        code = SourceFileLoader("__main__", file).get_code("__main__")
    except (OSError, ImportError, SyntaxError, ValueError, RecursionError):
        return {}
    return dict(_lines_of(code, "")) if code else {}


def _lines_of(outer: CodeType, around: str) -> Iterator[tuple[int, str]]:
    """Yields lines and their functions, what is inside after what is around it. Comprehensions and lambdas are of the function around them."""
    for code in outer.co_consts:
        if isinstance(code, CodeType):
            is_named = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
            name = code.co_qualname.replace(".<locals>", "") if is_named else around
            yield from ((line, name) for _, _, line in code.co_lines() if line and name)
            yield from _lines_of(code, name)
