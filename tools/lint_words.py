"""Reports docstrings that begin with a relative clause, and variables named with a bare participle.

Run by `python3 dev.py lint`. A docstring should say what the thing is or returns, and a variable name should be a noun.
"""

from __future__ import annotations

import ast
import pathlib
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("pilot", "webhook", "gotemplate", "ca", "deploy", "tools", "bench", "testing", "samples", "tests")
FIRST_WORDS = frozenset({"What", "Which", "Whose", "Where", "Who", "How", "Whether", "When"})
NAMES = frozenset({"found", "known", "said", "asked", "made", "told", "wanted", "kept"})


def violations(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the message of each violation in a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if text.split(maxsplit=1)[:1] and (
                text.split(maxsplit=1)[0] in FIRST_WORDS
            ):
                yield (
                    node.lineno,
                    f"docstring begins with {text.split(maxsplit=1)[0]!r}; say what the thing is or returns",
                )
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in NAMES:
                yield node.lineno, f"variable named {name!r}; use a noun"


def main() -> int:
    """Print every violation in the packages, and return the exit status."""
    count = 0
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for line, message in violations(ast.parse(path.read_text())):
                print(f"{path.relative_to(ROOT)}:{line}: {message}")
                count += 1
    if count:
        print(f"{count} violations", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
