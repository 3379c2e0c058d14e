"""Go's text/template: what users write in the injector's configuration and in charts, read and run as Go does.

https://pkg.go.dev/text/template defines the language, https://masterminds.github.io/sprig/ most of the functions.
"""

from gotemplate.errors import TemplateError
from gotemplate.template import Template, parse

__all__ = ["Template", "TemplateError", "parse"]
