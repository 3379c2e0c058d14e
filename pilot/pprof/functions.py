"""Which function a line of a file is in: tracemalloc knows lines alone."""
from __future__ import annotations

import ast
import functools
from collections.abc import Iterator


def function_at(file: str, line: int) -> str:
    """Returns the innermost function or method around a line, as "Class.method"; "<module>" outside of all, or where the file cannot be read."""
    around = [(begins, name) for begins, ends, name in _functions_of(file) if begins <= line <= ends]
    return max(around)[1] if around else "<module>"


@functools.lru_cache(1000)
def _functions_of(file: str) -> tuple[tuple[int, int, str], ...]:
    """Returns the first and the last line of each function of a file, and its name."""
    try:
        with open(file, encoding="utf-8") as opened:
            parsed = ast.parse(opened.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_functions_in(parsed, ""))


def _functions_in(node: ast.AST, outer: str) -> Iterator[tuple[int, int, str]]:
    for child in ast.iter_child_nodes(node):
        name = outer
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{outer}.{child.name}" if outer else child.name
            if not isinstance(child, ast.ClassDef):
                yield child.lineno, child.end_lineno or child.lineno, name
        yield from _functions_in(child, name)
