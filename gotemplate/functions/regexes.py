"""Sprig's regular expression functions, in RE2 syntax. https://masterminds.github.io/sprig/strings.html"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import re2

from gotemplate.function import Function, takes
from gotemplate.values import StringList

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_REFERENCE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})", re.ASCII)
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
_MESSAGES = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "invalid repetition size": "invalid repeat count",
    "no argument for repetition operator": "missing argument to repetition operator",
}


@functools.lru_cache(1024)
def _compile(pattern: str) -> Any:
    """Compile a pattern. Raises ValueError with Go's message if it is invalid."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        raw = error.args[0]
        text = raw.decode() if isinstance(raw, bytes) else str(raw)
        kind, _, place = text.partition(": ")
        raise ValueError(f"error parsing regexp: {_MESSAGES.get(kind) or kind}: `{place}`") from None


def _must(pattern: str) -> Any:
    try:
        return _compile(pattern)
    except ValueError as error:
        raise ValueError(f"regexp: Compile(`{pattern}`): {error}") from None


def _matches(pattern: str, text: str) -> bool:
    try:
        return bool(_compile(pattern).search(text))
    except ValueError:
        return False


def _iter_matches(pattern: Any, text: str) -> Iterator[Any]:
    """Yield the matches. An empty match directly after another match is omitted."""
    end = None
    for match in pattern.finditer(text):
        if match.end() > match.start() or match.start() != end:
            yield match
        end = match.end()


def _find(pattern: Any, text: str) -> str:
    match = pattern.search(text)
    return match[0] if match else ""


def _find_all(pattern: Any, text: str, count: int) -> StringList:
    matches = [match[0] for match in _iter_matches(pattern, text)]
    return StringList(matches if count < 0 else matches[:count])


def _replace(pattern: Any, text: str, replacement: str) -> str:
    """Replace all matches. In the replacement, $1 and ${name} refer to groups. Unknown groups are empty."""

    def expand(match: Any) -> str:
        def group(reference: re.Match[str]) -> str:
            if reference[0] == "$$":
                return "$"
            name = reference[1] or reference[2]
            try:
                return match[int(name) if name.isdecimal() else name] or ""
            except (IndexError, KeyError):
                return ""

        return _REFERENCE.sub(group, replacement)

    return _literal(pattern, text, expand)


def _literal(pattern: Any, text: str, replacement: Any) -> str:
    parts, end = [], 0
    for match in _iter_matches(pattern, text):
        parts += [text[end : match.start()], replacement(match) if callable(replacement) else replacement]
        end = match.end()
    return "".join([*parts, text[end:]])


def _split(pattern: Any, text: str, count: int) -> StringList:
    """Split the text at matches into at most `count` parts. If `count` is negative, there is no limit."""
    if count == 0:
        return StringList()
    if pattern.pattern and not text:
        return StringList([""])
    parts, begin, end = StringList(), 0, 0
    for match in _iter_matches(pattern, text):
        if 0 < count == len(parts) + 1:
            break
        end = match.start()
        if match.end() != 0:
            parts.append(text[begin:end])
        begin = match.end()
    return StringList([*parts, text[begin:]]) if end != len(text) else parts


def _compiling(compiled: Callable[[str], Any], act: Callable[..., Any]) -> Callable[..., Any]:
    return lambda pattern, *arguments: act(compiled(pattern), *arguments)


_ACTIONS: dict[str, tuple[str, Callable[..., Any]]] = {  # their parameters, and their actions on a compiled pattern
    "Find": ("string string", _find),
    "FindAll": ("string string int", _find_all),
    "ReplaceAll": ("string string string", _replace),
    "ReplaceAllLiteral": ("string string string", _literal),
    "Split": ("string string int", _split),
}
REGEXES: dict[str, Function] = {
    **{f"regex{name}": takes(parameters, _compiling(_must, act)) for name, (parameters, act) in _ACTIONS.items()},
    **{
        f"mustRegex{name}": takes(parameters, _compiling(_compile, act)) for name, (parameters, act) in _ACTIONS.items()
    },
    "regexMatch": takes("string string", _matches),
    "mustRegexMatch": takes("string string", lambda pattern, text: bool(_compile(pattern).search(text))),
    "regexQuoteMeta": takes("string", lambda text: _SPECIAL.sub(r"\\\1", text)),
}
