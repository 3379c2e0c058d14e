"""Functions of regular expressions in RE2's syntax. https://masterminds.github.io/sprig/strings.html"""
from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import re2

from webhook.template.function import Function, takes
from webhook.template.values import StringList

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
    """Returns the compiled pattern. ValueError in Go's words where it is none."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        raw = error.args[0]
        text = raw.decode() if isinstance(raw, bytes) else str(raw)
        kind, _, place = text.partition(": ")
        raise ValueError(f"error parsing regexp: {_MESSAGES.get(kind, kind)}: `{place}`") from None


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


def _found(pattern: Any, text: str) -> Iterator[Any]:
    """Yields the matches; one of nothing at the end of another one is none."""
    end = -1
    for match in pattern.finditer(text):
        if match.end() > match.start() or match.start() != end:
            yield match
        end = match.end()


def _find(pattern: Any, text: str) -> str:
    found = pattern.search(text)
    return found[0] if found else ""


def _find_all(pattern: Any, text: str, count: int) -> StringList:
    found = [match[0] for match in _found(pattern, text)]
    return StringList(found if count < 0 else found[:count])


def _replace(pattern: Any, text: str, replacement: str) -> str:
    """Returns the text with matches replaced; $1 and ${name} stand for groups, and for nothing where there is no such group."""

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
    for match in _found(pattern, text):
        parts += [text[end : match.start()], replacement(match) if callable(replacement) else replacement]
        end = match.end()
    return "".join([*parts, text[end:]])


def _split(pattern: Any, text: str, count: int) -> StringList:
    """Returns what is between the matches, in at most `count` pieces where that is not negative."""
    if count == 0:
        return StringList()
    if pattern.pattern and not text:
        return StringList([""])
    parts, begin, end = StringList(), 0, 0
    for match in _found(pattern, text):
        if 0 < count == len(parts) + 1:
            break
        end = match.start()
        if match.end() != 0:
            parts.append(text[begin:end])
        begin = match.end()
    return StringList([*parts, text[begin:]]) if end != len(text) else parts


def _functions(prefix: str, compiled: Any) -> dict[str, Function]:
    """Returns the functions that fail where the pattern is wrong."""
    made = {
        "regexFind": takes("string string", lambda pattern, text: _find(compiled(pattern), text)),
        "regexFindAll": takes("string string int", lambda pattern, text, count: _find_all(compiled(pattern), text, count)),
        "regexReplaceAll": takes("string string string", lambda pattern, text, new: _replace(compiled(pattern), text, new)),
        "regexReplaceAllLiteral": takes("string string string", lambda pattern, text, new: _literal(compiled(pattern), text, new)),
        "regexSplit": takes("string string int", lambda pattern, text, count: _split(compiled(pattern), text, count)),
    }
    return {f"{prefix}R{name[1:]}" if prefix else name: function for name, function in made.items()}


REGEXES: dict[str, Function] = {
    **_functions("", _must),
    **_functions("must", _compile),
    "regexMatch": takes("string string", _matches),
    "mustRegexMatch": takes("string string", lambda pattern, text: bool(_compile(pattern).search(text))),
    "regexQuoteMeta": takes("string", lambda text: _SPECIAL.sub(r"\\\1", text)),
}
