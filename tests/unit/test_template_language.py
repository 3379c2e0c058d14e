"""The template language: whitespace, control flow, variables, and errors with their place."""
from __future__ import annotations

import pytest

from webhook.template import TemplateError, parse
from webhook.template.functions import SPRIG

DATA = {"x": 1, "l": [1, 2, 3], "n": None, "f": 15020.0, "m": {"b": 2, "a": 1}, "e": [], "s": "text"}


def render(text: str) -> str:
    return parse("t", text, SPRIG).execute(DATA)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a {{- 3 -}} b", "a3b"),
        ("a {{ 3 }} b", "a 3 b"),
        ("{{/* unseen */ -}}  x", "x"),
        ("{{range $i, $e := .l}}{{$i}}={{$e}},{{else}}none{{end}}", "0=1,1=2,2=3,"),
        ("{{range .e}}x{{else}}none{{end}}", "none"),
        ("{{range $k, $v := .m}}{{$k}}{{$v}}{{end}}", "a1b2"),
        ("{{range .l}}{{if eq . 2}}{{continue}}{{end}}{{.}}{{end}}", "13"),
        ("{{range .l}}{{if eq . 2}}{{break}}{{end}}{{.}}{{end}}", "1"),
        ("{{if .n}}a{{else if .x}}b{{else}}c{{end}}", "b"),
        ("{{with .n}}a{{else with .s}}{{.}}{{end}}", "text"),
        ("{{$v := 1}}{{if true}}{{$v = 2}}{{end}}{{$v}}", "2"),
        ("{{$v := 1}}{{if true}}{{$v := 2}}{{end}}{{$v}}", "1"),
        ('{{define "a"}}<{{.}}>{{end}}{{template "a" .x}}', "<1>"),
        ('{{block "a" .s}}[{{.}}]{{end}}', "[text]"),
        ("{{.n}}|{{.missing}}|{{.missing.deeper}}", "<no value>|<no value>|<no value>"),
        ("{{.f}} {{1000000.0}}", "15020 1e+06"),
        ('{{"a" | printf "%s-%s" "b"}}', "b-a"),
    ],
)
def test_language(text: str, wanted: str) -> None:
    assert render(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a\n  {{ foo }}", 'template: t:2: function "foo" not defined'),
        ("{{$x}}", 'template: t:1: undefined variable "$x"'),
        ("\n\n {{.x.a}}", 'template: t:3:5: executing "t" at <.x.a>: can\'t evaluate field a in type interface {}'),
        ("{{.n.a.b}}", 'template: t:1:4: executing "t" at <.n.a.b>: nil pointer evaluating interface {}.a'),
        ('{{fail "no"}}', 'template: t:1:2: executing "t" at <fail "no">: error calling fail: no'),
        ("{{index .l 7}}", 'template: t:1:2: executing "t" at <index .l 7>: error calling index: index out of range: 7'),
        ("{{if .x}}", "template: t:1: unexpected EOF"),
        ("{{end}}", "template: t:1: unexpected {{end}}"),
        ('{{upper 3}}', 'template: t:1:8: executing "t" at <3>: expected string; found 3'),
    ],
)
def test_errors_say_where(text: str, wanted: str) -> None:
    with pytest.raises(TemplateError) as error:
        render(text)
    assert str(error.value) == wanted
