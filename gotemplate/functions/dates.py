"""Sprig's date functions. https://masterminds.github.io/sprig/date.html"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from typing import Any

from gotemplate.errors import ActionError
from gotemplate.function import Function, takes
from gotemplate.values import GoStruct, Int64
from pilot.lib.duration import Duration, parse_duration

_WORDS = re.compile(
    r"January|Jan|Monday|Mon|MST|2006|Z07:00:00|Z070000|Z07:00|Z0700|Z07|-07:00:00|-070000|-07:00|-0700|-07|002|__2|_2|[.,]0+(?!\d)|[.,]9+(?!\d)"
    r"|01|02|03|04|05|06|15|PM|pm|1|2|3|4|5"
)
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_UTC = zoneinfo.ZoneInfo("UTC")


class GoTime(GoStruct):
    """A time.Time."""

    type_name = "time.Time"

    def __init__(self, moment: datetime.datetime) -> None:
        self.moment = moment

    def member(self, name: str) -> Any:
        """Return the result of a method without arguments."""
        at = self.moment
        members: dict[str, Any] = {
            "Year": at.year,
            "Day": at.day,
            "Hour": at.hour,
            "Minute": at.minute,
            "Second": at.second,
            "YearDay": at.timetuple().tm_yday,
            "Month": _MONTHS[at.month - 1],
            "Weekday": _DAYS[at.weekday()],
            "Unix": Int64(int(at.timestamp())),
            "Nanosecond": at.microsecond * 1000,
            "String": self.printed("v"),
        }
        if name == "UTC":
            return GoTime(at.astimezone(_UTC))
        if name not in members:
            raise self.no_member(name)
        return members[name]

    def method(self, name: str) -> Any:
        """Return a method that takes arguments."""
        return {"Format": lambda layout: format_moment(layout, self.moment)}.get(name)

    def printed(self, verb: str) -> str:
        """Return the time as Go prints it."""
        return format_moment("2006-01-02 15:04:05.999999999 -0700 MST", self.moment)

    def plain(self) -> str:
        """Return the time in RFC 3339 format, as in JSON."""
        return format_moment("2006-01-02T15:04:05.999999999Z07:00", self.moment)


def _local() -> datetime.tzinfo:
    zone = datetime.datetime.now().astimezone().tzinfo
    assert zone is not None
    return zone


def _zone(name: str) -> datetime.tzinfo:
    if name == "Local":
        return _local()
    try:
        return zoneinfo.ZoneInfo(name or "UTC")
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return _UTC


def _moment(value: Any) -> datetime.datetime:
    """Return the time of a time.Time or of a number of seconds since 1970. Any other value means the current time."""
    if isinstance(value, GoTime):
        return value.moment
    if isinstance(value, int) and not isinstance(value, bool):
        return datetime.datetime.fromtimestamp(value, datetime.UTC)
    return datetime.datetime.now(datetime.UTC)


def format_moment(layout: str, moment: datetime.datetime) -> str:
    """Format a time with a Go layout. https://pkg.go.dev/time#Layout"""
    return _WORDS.sub(lambda match: _written(match[0], moment), layout)


def _written(word: str, at: datetime.datetime) -> str:
    hour = at.hour % 12 or 12
    simple = {
        "January": _MONTHS[at.month - 1],
        "Jan": _MONTHS[at.month - 1][:3],
        "Monday": _DAYS[at.weekday()],
        "Mon": _DAYS[at.weekday()][:3],
        "2006": f"{at.year:04d}",
        "06": f"{at.year % 100:02d}",
        "01": f"{at.month:02d}",
        "1": str(at.month),
        "02": f"{at.day:02d}",
        "_2": f"{at.day:2d}",
        "2": str(at.day),
        "002": f"{at.timetuple().tm_yday:03d}",
        "__2": f"{at.timetuple().tm_yday:3d}",
        "15": f"{at.hour:02d}",
        "03": f"{hour:02d}",
        "3": str(hour),
        "04": f"{at.minute:02d}",
        "4": str(at.minute),
        "05": f"{at.second:02d}",
        "5": str(at.second),
        "PM": "PM" if at.hour >= 12 else "AM",
        "pm": "pm" if at.hour >= 12 else "am",
        "MST": at.tzname() or "",
    }
    if word in simple:
        return simple[word]
    if word[0] in ".,":
        return _fraction(word, at)
    return _offset(word, at)


def _fraction(word: str, at: datetime.datetime) -> str:
    digits = f"{at.microsecond * 1000:09d}"[: len(word) - 1]
    digits = digits.rstrip("0") if word[1] == "9" else digits
    return word[0] + digits if digits else ""


def _offset(word: str, at: datetime.datetime) -> str:
    seconds = int((at.utcoffset() or datetime.timedelta()).total_seconds())
    if word[0] == "Z" and not seconds:
        return "Z"
    hours, rest = divmod(abs(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{hours:02d}", f"{minutes:02d}", f"{rest:02d}"][: {2: 1, 4: 2, 6: 3}[sum(c.isdigit() for c in word)]]
    return ("-" if seconds < 0 else "+") + (":" if ":" in word else "").join(parts)


_PATTERNS = {
    "January": "|".join(_MONTHS),
    "Jan": "|".join(m[:3] for m in _MONTHS),
    "Monday": "|".join(_DAYS),
    "Mon": "|".join(d[:3] for d in _DAYS),
    "2006": r"\d{4}",
    "06": r"\d\d",
    "01": r"\d\d",
    "1": r"\d\d?",
    "02": r"\d\d",
    "_2": r" ?\d\d?",
    "2": r"\d\d?",
    "002": r"\d{3}",
    "15": r"\d\d",
    "03": r"\d\d",
    "3": r"\d\d?",
    "04": r"\d\d",
    "4": r"\d\d?",
    "05": r"\d\d",
    "5": r"\d\d?",
    "PM": "AM|PM",
    "pm": "am|pm",
    "MST": r"[A-Z]{3,5}",
}


def parse_moment(layout: str, text: str) -> GoTime:
    """Parse a time with a Go layout. Raises ValueError if the text does not match."""
    words, pattern, end = [], "", 0
    for word in _WORDS.finditer(layout):
        pattern += re.escape(layout[end : word.start()])
        pattern += f"({_PATTERNS.get(word[0]) or (r'[.,][0-9]+' if word[0][0] in '.,' else r'Z|[+-][0-9:]+')})"
        words.append(word[0])
        end = word.end()
    match = re.fullmatch(pattern + re.escape(layout[end:]), text)
    if match is None:
        first = words[0] if words else layout
        raise ValueError(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "{first}"')
    try:
        return GoTime(_moment_of(dict(zip(map(_without_padding, words), match.groups(), strict=True))))
    except ValueError as error:  # its message starts with the name of the wrong part
        raise ValueError(f'parsing time "{text}": {str(error).split()[0]} out of range') from None


def _without_padding(word: str) -> str:
    """Return an element of a layout without its padding. The day of the year keeps its padding."""
    return word if word == "002" else word.lstrip("0_")


def _moment_of(values: dict[str, str]) -> datetime.datetime:
    def number(word: str, default: int = 0) -> int:
        return int(values.get(word, default))

    year = _century(number("6")) if "6" in values else number("2006", 1)
    month_name = next((m for w in ("January", "Jan") if w in values for m in _MONTHS if m.startswith(values[w])), None)
    month = _MONTHS.index(month_name) + 1 if month_name else number("1", 1)
    hour = number("15", number("3"))
    if half := values.get("PM") or values.get("pm"):
        hour = hour % 12 + (12 if half.upper() == "PM" else 0)
    fraction = next((v for w, v in values.items() if w[0] in ".,"), ".0")
    zone = next((v for w, v in values.items() if w[0] in "Z-"), None)
    at = datetime.datetime(
        year, month, number("2", 1), hour, number("4"), number("5"), int(float(f"0{fraction}") * 1e6)
    )
    return at.replace(tzinfo=_local() if zone is None else _fixed(zone))


def _century(year: int) -> int:
    return year + (1900 if year >= 69 else 2000)


def _fixed(text: str) -> datetime.tzinfo:
    if text == "Z":
        return _UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:4]))
    return datetime.timezone(-offset if text[0] == "-" else offset, text[0] + digits[:4])


def _modified(change: str, moment: Any, strict: bool = False) -> GoTime:
    if not isinstance(moment, GoTime):
        raise ActionError("wrong type for value; expected time.Time")
    try:
        return GoTime(moment.moment + datetime.timedelta(seconds=parse_duration(change).seconds))
    except ValueError:
        if strict:
            raise ValueError(f'time: invalid duration "{change}"') from None
        return moment


def _in_zone(layout: str, value: Any, zone: str) -> str:
    return format_moment(layout, _moment(value).astimezone(_zone(zone)))


def _to_date(layout: str, text: str) -> GoTime:
    try:
        return parse_moment(layout, text)
    except ValueError:
        return GoTime(datetime.datetime(1, 1, 1, tzinfo=_UTC))


def _ago(value: Any) -> str:
    return _go_duration(Duration.of(round((datetime.datetime.now(datetime.UTC) - _moment(value)).total_seconds())))


def _duration(value: Any) -> str:
    """Return a number of seconds as a duration. The number is a string or an int64."""
    seconds = (
        int(value) if isinstance(value, Int64) or (isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value)) else 0
    )
    return _go_duration(Duration.of(seconds))


def _go_duration(duration: Duration) -> str:
    """Return a duration as Go prints it, such as 1h0m0s."""
    total = abs(duration) / 1e9
    hours, rest = divmod(total, 3600)
    minutes, seconds = divmod(rest, 60)
    text = f"{seconds:g}s"
    text = f"{int(minutes)}m{text}" if hours or minutes else text
    return ("-" if duration < 0 else "") + (f"{int(hours)}h{text}" if hours else text)


def _rounded(value: Any) -> str:
    """Return a duration as a whole number of its largest unit."""
    if isinstance(value, GoTime):
        total = abs((datetime.datetime.now(datetime.UTC) - value.moment).total_seconds())
    elif isinstance(value, Int64):
        total = abs(int(value)) / 1e9
    elif isinstance(value, str):
        try:
            total = abs(parse_duration(value).seconds)
        except ValueError:
            return "0s"
    else:
        return "0s"
    units = (("y", 365 * 86400), ("mo", 30 * 86400), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    return next((f"{int(total // size)}{unit}" for unit, size in units if total > size), "0s")


DATES: dict[str, Function] = {
    "now": takes("", lambda: GoTime(datetime.datetime.now().astimezone())),
    "ago": takes("any", _ago),
    "date": takes("string any", lambda layout, value: _in_zone(layout, value, "Local")),
    "dateInZone": takes("string any string", _in_zone),
    "date_in_zone": takes("string any string", _in_zone),
    "htmlDate": takes("any", lambda value: _in_zone("2006-01-02", value, "Local")),
    "htmlDateInZone": takes("any string", lambda value, zone: _in_zone("2006-01-02", value, zone)),
    "dateModify": takes("string any", _modified),
    "date_modify": takes("string any", _modified),
    "mustDateModify": takes("string any", lambda change, moment: _modified(change, moment, strict=True)),
    "must_date_modify": takes("string any", lambda change, moment: _modified(change, moment, strict=True)),
    "toDate": takes("string string", _to_date),
    "mustToDate": takes("string string", parse_moment),
    "unixEpoch": takes("struct", lambda moment: str(moment.member("Unix"))),
    "duration": takes("any", _duration),
    "durationRound": takes("any", _rounded),
}
