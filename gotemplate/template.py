"""Compiled templates, which can be executed many times and from any thread."""

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
    """Parse a template. Raises TemplateError with the line for a syntax error."""
    template = Template(name, functions)
    template.add(name, text)
    return template


class Template:
    """A set of templates that can call each other. `include` is added to `functions`."""

    def __init__(self, name: str, functions: Mapping[str, Function]) -> None:
        self.name = name
        self._functions = {**functions, "include": takes("string any", self._include)}
        self._texts: dict[str, str] = {}
        self._compiled: dict[str, tuple[DefinitionNode, Run]] = {}

    @property
    def names(self) -> list[str]:
        """Return the names of all templates in the set."""
        return sorted(self._compiled)

    def add(self, name: str, text: str) -> None:
        """Add the templates in a source. They replace existing ones with the same names.

        Raises TemplateError for a syntax error.
        """
        try:
            definitions = parse_definitions(name, text, self._functions)
        except RecursionError:
            raise TemplateError(f"template: {name}: nested too deeply") from None
        statements = Statements(Expressions(self._functions), self._find)
        self._texts[name] = text
        for definition in definitions.values():
            self._compiled[definition.name] = definition, statements.body(definition.body)

    def execute(self, data: Any, name: str = "") -> str:
        """Execute the template `name`, or the main template if it is "". Raises TemplateError if an action cannot be
        evaluated."""
        parts: list[str] = []
        try:
            self._execute(name or self.name, data, parts.append)
        except KeyError:
            raise TemplateError(
                f"template: {name or self.name}: "
                f'no template "{name or self.name}" associated with template "{self.name}"'
            ) from None
        except RecursionError:
            raise TemplateError(f"template: {self.name}: exceeded maximum template depth") from None
        return "".join(parts)

    def _find(self, name: str) -> Callable[[Any, Write], None]:
        self._compiled[name]  # KeyError
        return lambda data, write: self._execute(name, data, write)

    def _execute(self, name: str, data: Any, write: Write) -> None:
        definition, run = self._compiled[name]
        slots = [data, *(None,) * (definition.slots - 1)]
        try:
            run(data, slots, write)
        except LocatedError as error:
            line, column = place(definition.text, error.position)
            location = f"{self._file_of(definition)}:{line}:{column}"
            raise TemplateError(
                f'template: {location}: executing "{name}" at <{error.context}>: {error.message}'
            ) from error

    def _file_of(self, definition: DefinitionNode) -> str:
        """Return the name of the source that defines a template."""
        return next((name for name, text in self._texts.items() if text is definition.text), self.name)

    def _include(self, name: str, data: Any) -> str:
        """Return the output of another template in the set."""
        parts: list[str] = []
        if name not in self._compiled:
            raise ValueError(f'template: no template "{name}" associated with template "{self.name}"')
        self._execute(name, data, parts.append)
        return "".join(parts)
