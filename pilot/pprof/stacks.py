"""Profiles: stacks with values, encoded as pprof's profile.proto or as text."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from protos import profile_pb2


class StackFrame(NamedTuple):
    """One call in a stack: the qualified function, its file, the current line, and the function's first line."""

    function: str
    file: str
    line: int = 0
    begins: int = 0


Stack = tuple[StackFrame, ...]
"""Calls, with the innermost one first."""


class ValueType(NamedTuple):
    """Type and unit of a value, such as ("cpu", "nanoseconds")."""

    type: str
    unit: str


class Profile(NamedTuple):
    """Values for each stack.

    kinds: The type of each value.
    period: The amount of `period_kind` that one sample stands for.
    seconds: Duration of the profile, or 0 for a snapshot.
    shown: Index of the kind that is shown by default.
    """

    kinds: Sequence[ValueType]
    samples: Mapping[Stack, Sequence[int]]
    period_kind: ValueType
    period: int = 1
    seconds: float = 0.0
    shown: int = 0


def encode(profile: Profile) -> bytes:
    """Return a profile as gzipped profile.proto."""
    return gzip.compress(_Builder(profile).message.SerializeToString(), 6)


class _Builder:
    """Builds the message. Each string, function and location is stored once and referenced by number."""

    def __init__(self, profile: Profile) -> None:
        self.message = profile_pb2.Profile(
            period=profile.period, time_nanos=time.time_ns(), duration_nanos=round(profile.seconds * 1e9)
        )
        self._texts: dict[str, int] = {}
        self._functions: dict[tuple[str, str, int], int] = {}
        self._locations: dict[StackFrame, int] = {}
        self._text("")
        for kind in profile.kinds:
            self.message.sample_type.add(type=self._text(kind.type), unit=self._text(kind.unit))
        self.message.period_type.type, self.message.period_type.unit = (
            self._text(profile.period_kind.type),
            self._text(profile.period_kind.unit),
        )
        self.message.default_sample_type = self._text(profile.kinds[profile.shown].type)
        for stack, values in profile.samples.items():
            self.message.sample.add(location_id=[self._location(call) for call in stack], value=values)

    def _text(self, text: str) -> int:
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = len(self._texts)
            self.message.string_table.append(text.encode("utf-8", "replace").decode())
        return number

    def _function(self, call: StackFrame) -> int:
        key = call.function, call.file, call.begins
        number = self._functions.get(key)
        if number is None:
            number = self._functions[key] = len(self._functions) + 1
            name = self._text(call.function)
            self.message.function.add(
                id=number, name=name, system_name=name, filename=self._text(call.file), start_line=call.begins
            )
        return number

    def _location(self, call: StackFrame) -> int:
        number = self._locations.get(call)
        if number is None:
            number = self._locations[call] = len(self._locations) + 1
            self.message.location.add(id=number).line.add(function_id=self._function(call), line=call.line)
        return number


def as_text(head: str, profile: Profile) -> str:
    """Return a profile as text: a header, then the stacks, largest first. The values of a stack precede it."""
    ordered = sorted(profile.samples.items(), key=lambda sample: sample[1][profile.shown], reverse=True)
    return "\n".join([head, *(line for stack, values in ordered for line in _stack_lines(stack, values)), ""])


def _stack_lines(stack: Stack, values: Sequence[int]) -> Iterable[str]:
    yield " ".join(map(str, values)) + " @"
    yield from call_lines(stack)
    yield ""


def call_lines(stack: Stack) -> Iterable[str]:
    """Return the lines of a stack, one per call."""
    return (f"#\t{call.function}\t{call.file}:{call.line}" for call in stack)
