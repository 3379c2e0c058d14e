"""An interpreter of Go's text/template, for injection templates and Helm charts.

https://pkg.go.dev/text/template defines the language; https://masterminds.github.io/sprig/ documents most functions.
"""

from gotemplate.errors import TemplateError
from gotemplate.template import Template, parse

__all__ = ["Template", "TemplateError", "parse"]
