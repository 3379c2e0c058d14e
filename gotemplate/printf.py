"""Go's Sprintf. https://pkg.go.dev/fmt#hdr-Printing"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from gotemplate.floats import shortest, with_precision
from gotemplate.printing import to_text
from gotemplate.quoting import go_syntax, quoted, quoted_rune
from gotemplate.values import GoStruct, type_name

_VERB = re.compile(r"%([-+# 0]*)(?:\[(\d+)\])?(\d+|\*)?(?:\.(?:\[(\d+)\])?(\d+|\*)?)?(?:\[([^\]]*)\])?(.?)", re.DOTALL)
_BASES = {"b": ("b", "0b"), "o": ("o", "0"), "O": ("o", "0o"), "x": ("x", "0x"), "X": ("X", "0X")}


class FormatLayout(NamedTuple):
    """The flags, width and precision of a verb. The width and the precision are None if absent."""

    flags: str
    width: int | None
    precision: int | None


_SIMPLE = 2
"""Length of a verb without flags, width, precision and argument index."""
_TEXT_VERBS = "%s", "%v"
_PLAIN = FormatLayout("", None, None)


def sprintf(form: str, *values: Any) -> str:
    """Format values as Go's fmt.Sprintf does. As in Go, an invalid verb puts %!verb(…) in the output."""
    return _Printer(form, values).run()


class _Printer:
    def __init__(self, form: str, values: tuple[Any, ...]) -> None:
        self._form, self._values = form, values
        self._next, self._reordered = 0, False

    def run(self) -> str:
        """Return the formatted text."""
        if "%" not in self._form:
            return self._form + self._extra()
        text = _VERB.sub(self._replace, self._form)
        return text + self._extra()

    def _replace(self, match: re.Match[str]) -> str:
        if match.end() - match.start() == _SIMPLE and match[0] != "%%" and 0 <= self._next < len(self._values):
            value = self._values[self._next]
            self._next += 1
            return value if type(value) is str and match[0] in _TEXT_VERBS else format_value(match[7], value, _PLAIN)
        flags, place, width_text, _, precision_text, last_place, verb = match.groups()
        self._move(place)
        width = self._number(width_text)
        has_precision = "." in match[0][: len(match[0]) - len(verb)]
        precision = (self._number(precision_text) or 0) if has_precision else None
        self._move(last_place)
        if width is not None and width < 0:
            flags, width = flags + "-", -width
        if verb == "%":
            return "%"
        if not verb:
            return "%!(NOVERB)"
        if self._next >= len(self._values) or self._next < 0:
            return f"%!{verb}(BADINDEX)" if self._next < 0 or self._reordered else f"%!{verb}(MISSING)"
        value = self._values[self._next]
        self._next += 1
        return format_value(verb, value, FormatLayout(flags, width, precision))

    def _move(self, place: str | None) -> None:
        if place is not None:
            self._next, self._reordered = int(place) - 1 if place.isdecimal() else -1, True
            if not 0 <= self._next < len(self._values):
                self._next = -1

    def _number(self, text: str | None) -> int | None:
        if text != "*":
            return int(text) if text else None
        value = self._values[self._next] if 0 <= self._next < len(self._values) else None
        self._next += 1
        return value if isinstance(value, int) else None

    def _extra(self) -> str:
        rest = self._values[self._next :] if not self._reordered else ()
        shown = ", ".join("<nil>" if v is None else f"{type_name(v)}={to_text(v)}" for v in rest)
        return f"%!(EXTRA {shown})" if rest else ""


def format_value(verb: str, value: Any, layout: FormatLayout) -> str:
    """Format one value with a verb."""
    if verb == "T":
        return _pad(type_name(value), layout)
    if verb == "v":
        return _default(value, layout)
    if value is None:
        return _wrong(verb, value)
    if isinstance(value, list):
        return "[" + " ".join(_inner(verb, item, layout) for item in value) + "]"
    if isinstance(value, dict):
        inner = (f"{format_value(verb, k, layout)}:{_inner(verb, value[k], layout)}" for k in sorted(value))
        return f"map[{' '.join(inner)}]"
    formatted = _scalar(verb, value, layout)
    return _wrong(verb, value) if formatted is None else formatted


def _inner(verb: str, value: Any, layout: FormatLayout) -> str:
    return "<nil>" if value is None else format_value(verb, value, layout)


def _default(value: Any, layout: FormatLayout) -> str:
    if "#" in layout.flags:
        return _pad(go_syntax(value), layout)
    if isinstance(value, bool) or value is None or isinstance(value, str | GoStruct):
        text = to_text(value, "+v" if "+" in layout.flags else "v")
        return _pad(text[: layout.precision] if isinstance(value, str) else text, layout)
    # %+v prints field names of structs; it has no effect on other values
    layout = layout._replace(flags=layout.flags.replace("+", ""))
    if isinstance(value, int):
        return _integer(value, "d", layout)
    if isinstance(value, float):
        return _float(value, "v", layout)
    if isinstance(value, list):
        return "[" + " ".join(_default(item, layout) for item in value) + "]"
    return f"map[{' '.join(f'{_default(k, layout)}:{_default(value[k], layout)}' for k in sorted(value))}]"


def _scalar(verb: str, value: Any, layout: FormatLayout) -> str | None:
    """Format a scalar with a verb. Return None if the verb does not apply to the scalar's type."""
    if isinstance(value, bool):
        return _pad("true" if value else "false", layout) if verb == "t" else None
    if isinstance(value, int):
        return _integer(value, verb, layout) if verb in "bcdoOqxXU" else None
    if isinstance(value, float):
        return _float(value, verb, layout) if verb in "gGxXfFeE" else None
    if isinstance(value, str):
        return _string(value, verb, layout) if verb in "sxXq" else None
    return _pad(to_text(value), layout) if verb == "s" else None


def _string(value: str, verb: str, layout: FormatLayout) -> str:
    text = value if layout.precision is None else value[: layout.precision]
    if verb == "s":
        return _pad(text, layout)
    if verb == "q":
        raw = "#" in layout.flags and "`" not in text and all(c.isprintable() or c == "\t" for c in text)
        return _pad(f"`{text}`" if raw else quoted(text, ascii_only="+" in layout.flags), layout)
    digits = text.encode().hex(" ") if " " in layout.flags else text.encode().hex()
    digits = f"0x{digits}" if "#" in layout.flags and digits else digits
    return _pad(digits.upper() if verb == "X" else digits, layout)


def _integer(value: int, verb: str, layout: FormatLayout) -> str:
    if verb == "c":
        return _pad(chr(value), layout)
    if verb == "q":
        return _pad(quoted_rune(value, "+" in layout.flags), layout)
    if verb == "U":
        return _pad(
            f"U+{value:04X}" + (f" '{chr(value)}'" if "#" in layout.flags and chr(value).isprintable() else ""), layout
        )
    letter, prefix = _BASES.get(verb, ("d", ""))
    digits = format(abs(int(value)), letter)
    if layout.precision is not None:
        digits = "" if layout.precision == 0 and value == 0 else digits.rjust(layout.precision, "0")
    sign = "-" if value < 0 else "+" if "+" in layout.flags else " " if " " in layout.flags else ""
    shown = prefix if verb == "O" or "#" in layout.flags else ""
    if _zeros(layout) and layout.precision is None:
        digits = digits.rjust((layout.width or 0) - len(sign), "0")
    return _pad(sign + shown + digits, layout._replace(flags=layout.flags.replace("0", "")))


def _float(value: float, verb: str, layout: FormatLayout) -> str:
    if verb in "xX":
        mantissa, _, power = value.hex().partition("p")
        text = f"{mantissa.rstrip('0').rstrip('.')}p{power[0]}{power[1:]:0>2}"
        text = text.upper() if verb == "X" else text
    elif layout.precision is None and verb in "vgG":
        text = shortest(value)
    elif verb == "v":
        text = with_precision(value, "g", layout.precision or 0)
    else:
        text = with_precision(
            value, verb.lower(), 6 if layout.precision is None else layout.precision, "#" in layout.flags
        )
    text = text.upper() if verb in "EG" else text
    finite = text[-1].isdigit()
    sign = text[0] if text[0] in "+-" else ""
    bare = text[len(sign) :]
    sign = (
        sign
        if sign == "-"
        else "+"
        if "+" in layout.flags
        else " "
        if " " in layout.flags
        else ("+" if sign == "+" and not finite else "")
    )
    if _zeros(layout) and finite:
        bare = bare.rjust((layout.width or 0) - len(sign), "0")
    return _pad(sign + bare, layout._replace(flags=layout.flags.replace("0", "")))


def _zeros(layout: FormatLayout) -> bool:
    return "0" in layout.flags and "-" not in layout.flags


def _pad(text: str, layout: FormatLayout) -> str:
    if layout.width is None:
        return text
    if "-" in layout.flags:
        return text.ljust(layout.width)
    return text.rjust(layout.width, "0" if _zeros(layout) else " ")


def _wrong(verb: str, value: Any) -> str:
    return f"%!{verb}({'<nil>' if value is None else f'{type_name(value)}={to_text(value)}'})"
