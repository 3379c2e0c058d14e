"""Reports regular expressions of Python's `re` that may take more than linear time.

Run by `python3 dev.py lint`. The text that an expression is applied to may come from anybody, and `re` backtracks. It
takes linear time if the number of ways to match a part of the text does not grow with its length. It grows if the
automaton of the expression has two states and there is a text that leads from the first to itself, from the first to
the second, and from the second to itself, as in `a*a*` or `(a*)*` (Weber and Seidl, "On the degree of ambiguity of
finite automata", 1991). `search`, `sub`, `findall`, `finditer` and `split` begin anywhere in the text, as if the
expression began with `.*`.

Bounds of repetitions, possessive quantifiers and most conditions on the surrounding text are ignored, so an expression
may be reported although it is linear. `EXEMPT` contains those. A scanner that calls `match` repeatedly must stop at the
first failure. Expressions that are not constants must be matched with RE2 (`pilot.lib.regex`).
"""

from __future__ import annotations

import ast
import importlib
import itertools
import pathlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("pilot", "webhook", "gotemplate", "ca")
_CONSTRAINT = "constraints are written by the authors of charts"
_ENVIRONMENT = "the text is the environment of the process"
EXEMPT: Mapping[str, str] = {
    "gotemplate/functions/dates.py:fullmatch": "layouts are written by the authors of templates",
    "gotemplate/functions/semver.py:_LIMIT": _CONSTRAINT,
    "gotemplate/functions/semver.py:_RANGE": _CONSTRAINT,
    "gotemplate/functions/semver.py:split": _CONSTRAINT,
    "gotemplate/functions/words.py:sub": "each run of digits is scanned once, after a letter",
    "gotemplate/printf.py:_VERB": "formats are written by the authors of templates",
    "pilot/agent/wasm/image_registry.py:_PARAMETER": "each run of letters is scanned once",
    "pilot/ingest/files/outline.py:_TOKEN": "the text is valid JSON, so each string ends",
    "pilot/kube/deep_json.py:_BRACKET": "the text is JSON of an API server, so each string ends and a bracket is last",
    "pilot/lib/duration.py:_PART": "the text has at most 128 characters",
    "pilot/lib/redact.py:_PASSWORD": "each run without slashes is scanned once",
    "pilot/lib/redact.py:_PRIVATE_KEY": "a match ends at the end of the text at the latest",
    "pilot/lib/redact.py:_TOKEN": "at most 2000 characters are scanned from each beginning",
    "pilot/lib/redaction.py:_PASSWORD_IN_URL": _ENVIRONMENT,
    "pilot/lib/redaction.py:_SECRET_VALUE": _ENVIRONMENT,
    "pilot/settings/without_effect.py:_OF_SERVICE": _ENVIRONMENT,
    "webhook/pod/schema.py:_FIELD": "the text is a constant of the module",
}
"""The expressions that are linear for another reason, or whose text nobody else chooses, and the reason.

The key is the file, and the name of the expression or, without a name, the method.
"""
_ANCHORED = frozenset({"match", "fullmatch"})
_METHODS = _ANCHORED | {"search", "sub", "subn", "findall", "finditer", "split"}
_SAMPLES = '\x00\t\n\r\x1f !"%-./0189:@AZ[_az{\x7f\x80\xa0é٣ſ\u2003\u2028K한\ud800\U0001f600\U0010ffff'
_CHARACTER = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)
_BEGINNING = ((sre.AT, sre.AT_BEGINNING), (sre.AT, sre.AT_BEGINNING_STRING))
_REPEAT = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


class Part(NamedTuple):
    """A part of an expression.

    `first` and `last` are its first and last positions, once for each way to begin or end there. `ways` is the number
    of ways to match the empty text, at most 2. `ends` are the last positions after which the part cannot fail, and
    `is_free` says whether it matches the empty text unconditionally.
    """

    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    ways: int = 1
    ends: tuple[int, ...] = ()
    is_free: bool = True


class Automaton:
    """The position automaton of an expression (Glushkov). A position is an occurrence of a character or class."""

    def __init__(self, pattern: str | bytes, flags: int, anchored: bool) -> None:
        tree = parser.parse(pattern, flags)
        self._flags = tree.state.flags
        self._samples = sorted({*_SAMPLES, *_boundaries(tree)})
        self._classes: list[frozenset[str]] = []
        self._edges: Counter[tuple[int, int]] = Counter()
        whole = self._sequence(tree)
        self._start, self._ends = -1, frozenset(whole.ends)
        begins = bool(tree) and tree[0] in _BEGINNING
        if begins and not anchored and self._flags & re.MULTILINE:
            self._start, line_break = self._position(frozenset(self._samples)), self._position(frozenset("\n"))
            self._connect((self._start,), (self._start, line_break))
            self._connect((line_break,), whole.first)
        elif not begins and not anchored:
            self._start = self._position(frozenset(self._samples))
            self._connect((self._start,), (self._start, *whole.first))
        self._follow: list[list[int]] = [[] for _ in self._classes]
        for begin, end in self._edges:
            self._follow[begin].append(end)

    def is_linear(self) -> bool:
        """Return whether the number of ways to match a text is limited."""
        reach = [self._reachable(state) for state in range(len(self._follow))]
        loops = [state for state, reached in enumerate(reach) if state in reached]
        if any(count > 1 and p in reach[q] for (p, q), count in self._edges.items()):
            return False
        return not any(
            self._share_text(p, q, reach)
            for p, q in itertools.permutations(loops, 2)
            if q in reach[p]
            and not (
                p == self._start and q in self._ends
            )  # the search succeeds there, and the next one begins after the match
        )

    def _reachable(self, state: int) -> frozenset[int]:
        todo, seen = [state], set[int]()
        while todo:
            new = set(self._follow[todo.pop()]) - seen
            seen |= new
            todo += new
        return frozenset(seen)

    def _share_text(self, p: int, q: int, reach: list[frozenset[int]]) -> bool:
        """Return whether one text leads from p to p, from p to q, and from q to q."""
        todo, seen = list[tuple[int, ...]]([(p, p, q)]), set[tuple[int, ...]]()
        while todo:
            for states in itertools.product(*(self._follow[state] for state in todo.pop())):
                if states == (p, q, q) and self._classes[p] & self._classes[q]:
                    return True
                is_useful = p in reach[states[0]] and q in reach[states[1]] and q in reach[states[2]]
                if states not in seen and is_useful and frozenset.intersection(*(self._classes[s] for s in states)):
                    seen.add(states)
                    todo.append(states)
        return False

    # -- construction

    def _position(self, characters: frozenset[str]) -> int:
        self._classes.append(characters)
        return len(self._classes) - 1

    def _connect(self, last: Iterable[int], first: Iterable[int]) -> None:
        self._edges.update(itertools.product(last, first))

    def _sequence(self, items: Iterable[tuple[Any, Any]]) -> Part:
        whole = Part()
        for code, value in items:
            part = self._part(code, value)
            self._connect(whole.last, part.first)
            whole = Part(
                whole.first + part.first * whole.ways,
                part.last + whole.last * part.ways,
                min(2, whole.ways * part.ways),
                part.ends + (whole.ends if part.is_free else ()),
                whole.is_free and part.is_free,
            )
        return whole

    def _part(self, code: Any, value: Any) -> Part:
        if code in _CHARACTER:
            position = self._position(self._class(code, value))
            return Part((position,), (position,), 0, (position,), False)
        if code in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
            return self._sequence(value[3] if code is sre.SUBPATTERN else value)
        if code is sre.BRANCH:
            first, last, ways, ends, is_free = zip(*map(self._sequence, value[1]), strict=True)
            return Part(sum(first, ()), sum(last, ()), min(2, sum(ways)), sum(ends, ()), any(is_free))
        if code in _REPEAT:
            least, most, body = value
            part = self._sequence(body)
            if most > 1:
                self._connect(part.last, part.first)
            return part._replace(ways=min(2, part.ways + (least == 0)), is_free=part.is_free or least == 0)
        if code in (sre.ASSERT, sre.ASSERT_NOT):
            direction, body = value
            return Part(self._sequence(body).first if direction > 0 else (), is_free=False)
        if code is sre.AT:
            return Part(is_free=False)
        raise NotImplementedError(code)

    def _class(self, code: Any, value: Any) -> frozenset[str]:
        return frozenset(sample for sample in self._samples if self._is_in(sample, code, value))

    def _is_in(self, sample: str, code: Any, value: Any) -> bool:
        if code is sre.ANY:
            return sample != "\n" or bool(self._flags & re.DOTALL)
        if code is sre.IN:
            items = [item for item in value if item[0] is not sre.NEGATE]
            return (len(items) < len(value)) != any(self._is_in(sample, *item) for item in items)
        if code is sre.CATEGORY:
            name = str(value).removeprefix("CATEGORY_")
            letter = name.removeprefix("NOT_")[0]
            escape = "\\" + (letter if name.startswith("NOT_") else letter.lower())
            return re.fullmatch(escape, sample, 0 if self._flags & re.UNICODE else re.ASCII) is not None
        cases = {sample, sample.lower(), sample.upper()} if self._flags & re.IGNORECASE else {sample}
        if code is sre.RANGE:
            return any(len(case) == 1 and value[0] <= ord(case) <= value[1] for case in cases)
        return (chr(value) in cases) == (code is sre.LITERAL)


def _boundaries(items: Iterable[Any]) -> Iterator[str]:
    """Yield the characters of an expression, and those next to its ranges."""
    for item in items:
        if isinstance(item, tuple) and len(item) == 2 and item[0] in (sre.LITERAL, sre.NOT_LITERAL):
            yield chr(item[1])
        elif isinstance(item, tuple) and len(item) == 2 and item[0] is sre.RANGE:
            low, high = item[1]
            yield from (chr(point) for point in (low - 1, low, high, high + 1) if 0 <= point <= sys.maxunicode)
        elif isinstance(item, (tuple, list, parser.SubPattern)):
            yield from _boundaries(item)


def is_linear(pattern: str | bytes, flags: int = 0, anchored: bool = False) -> bool:
    """Return whether an expression certainly takes linear time. References to groups may not.

    With `anchored`, it is matched at one position of a text only.
    """
    try:
        return Automaton(pattern, flags, anchored).is_linear()
    except NotImplementedError:
        return False


class Use(NamedTuple):
    """A use of `re` in a module. `name` is the name of the expression, or the method. `pattern` is None if it is not a
    constant."""

    line: int
    name: str
    pattern: str | bytes | None
    flags: int
    methods: frozenset[str]


def uses(tree: ast.Module, names: Mapping[str, Any]) -> Iterator[Use]:
    """Yield the uses of `re` in a module. `names` are the values of its names."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "re":
            yield Use(node.lineno, "import", None, 0, frozenset())
        if not isinstance(node, ast.Call):
            continue
        method = _name_in_re(node.func)
        if method in _METHODS:
            pattern = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            flags = sum({getattr(re, name) for name in map(_name_in_re, ast.walk(node)) if name.isupper()})
            yield Use(node.lineno, method, pattern, flags, frozenset({method}))  # type: ignore[arg-type]
        elif method == "compile":
            parent = parents[node]
            bound = parent.attr if isinstance(parent, ast.Attribute) else ""
            target = getattr(parents[parent] if bound else parent, "targets", [None])[0]
            name = target.id if isinstance(target, ast.Name) else method
            value = names.get(name)
            value = getattr(value, "__self__", value)  # of a bound method
            methods = frozenset({bound}) if bound else _methods_of(tree, name)
            yield Use(node.lineno, name, getattr(value, "pattern", None), getattr(value, "flags", 0), methods)


def _name_in_re(node: ast.AST) -> str:
    """Return the name of an attribute of the module `re`, or ""."""
    is_attribute = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "re"
    return node.attr if is_attribute else ""  # type: ignore[attr-defined]


def _methods_of(tree: ast.Module, name: str) -> frozenset[str]:
    """Return the methods that a module calls on an expression, or "search" if it is used in another way."""
    loads = sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(tree))
    attributes = [n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == name]
    methods = frozenset(attributes) - {"pattern", "flags"}
    return methods if len(attributes) == loads and methods and methods <= _METHODS else frozenset({"search"})


def find_problems(path: pathlib.Path) -> Iterator[str]:
    """Yield the problems of the expressions in a file."""
    place = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text("utf-8"))
    unused = {key for key in EXEMPT if key.startswith(f"{place}:")}
    if not any(isinstance(n, (ast.Import, ast.ImportFrom)) and "re" in ast.unparse(n) for n in ast.walk(tree)):
        return
    module = importlib.import_module(place.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    for use in uses(tree, vars(module)):
        problem = ""
        if use.pattern is None:
            problem = "assign a constant expression to a name of the module, or match it with RE2 (pilot.lib.regex)"
        elif not is_linear(use.pattern, use.flags, use.methods <= _ANCHORED):
            problem = f"{use.pattern!r} may take more than linear time with {', '.join(sorted(use.methods))}"
        key = f"{place}:{use.name}"
        if problem and key not in EXEMPT:
            yield f"{place}:{use.line}: {use.name}: {problem}"
        unused -= {key} if problem else set()
    yield from (f"{key} is linear; remove it from EXEMPT" for key in sorted(unused))


def main() -> int:
    sys.path.insert(0, str(ROOT))
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    problems = [problem for path in paths for problem in find_problems(path)]
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
