"""A template that has been compiled once and can be executed many times, from any thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gotemplate.errors import LocatedError, TemplateError, place
from gotemplate.expressions import Expressions
from gotemplate.function import Function, takes
from gotemplate.nodes import DefinitionNode
from gotemplate.parser import parse_definitions
from gotemplate.statements import Run, Statements, Write


def parse(name: str, text: str, functions: Mapping[str, Function]) -> Template:
    """Returns the template of a text. TemplateError where it is wrong, with the line."""
    made = Template(name, functions)
    made.add(name, text)
    return made


class Template:
    """A set of templates of which one is executed. `functions` are what they may call, in addition to `include`."""

    def __init__(self, name: str, functions: Mapping[str, Function]) -> None:
        self.name = name
        self._functions = {**functions, "include": takes("string any", self._include)}
        self._texts: dict[str, str] = {}
        self._compiled: dict[str, tuple[DefinitionNode, Run]] = {}

    @property
    def names(self) -> list[str]:
        """Returns the names of all templates of the set."""
        return sorted(self._compiled)

    def add(self, name: str, text: str) -> None:
        """Adds the templates of a further text; one of a known name takes its place. TemplateError where the text is wrong."""
        try:
            found = parse_definitions(name, text, self._functions)
        except RecursionError:
            raise TemplateError(f"template: {name}: nested too deeply") from None
        statements = Statements(Expressions(self._functions), self._find)
        self._texts[name] = text
        for defined in found.values():
            self._compiled[defined.name] = defined, statements.body(defined.body)

    def execute(self, data: Any, name: str = "") -> str:
        """Returns the output of the set's own template, or of another one of it. TemplateError where an action cannot be evaluated."""
        parts: list[str] = []
        try:
            self._execute(name or self.name, data, parts.append)
        except KeyError:
            raise TemplateError(
                f'template: {name or self.name}: no template "{name or self.name}" associated with template "{self.name}"'
            ) from None
        except RecursionError:
            raise TemplateError(f"template: {self.name}: exceeded maximum template depth") from None
        return "".join(parts)

    def _find(self, name: str) -> Callable[[Any, Write], None]:
        self._compiled[name]  # KeyError
        return lambda data, write: self._execute(name, data, write)

    def _execute(self, name: str, data: Any, write: Write) -> None:
        defined, run = self._compiled[name]
        slots = [data, *(None,) * (defined.slots - 1)]
        try:
            run(data, slots, write)
        except LocatedError as error:
            line, column = place(defined.text, error.position)
            message = f'template: {self._file_of(defined)}:{line}:{column}: executing "{name}" at <{error.context}>: {error.message}'
            raise TemplateError(message) from error

    def _file_of(self, defined: DefinitionNode) -> str:
        """Returns the name of the text that a template is defined in."""
        return next((name for name, text in self._texts.items() if text is defined.text), self.name)

    def _include(self, name: str, data: Any) -> str:
        """Returns the output of another template of the set as text."""
        parts: list[str] = []
        if name not in self._compiled:
            raise ValueError(f'template: no template "{name}" associated with template "{self.name}"')
        self._execute(name, data, parts.append)
        return "".join(parts)
