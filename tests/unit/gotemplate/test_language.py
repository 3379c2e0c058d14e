"""Template language: whitespace, control flow, variables and errors."""

from __future__ import annotations

import pytest

from gotemplate import TemplateError, parse
from gotemplate.function import takes
from gotemplate.functions import SPRIG

DATA = {"x": 1, "l": [1, 2, 3], "n": None, "f": 15020.0, "m": {"b": 2, "a": 1}, "e": [], "s": "text"}


def render(text: str) -> str:
    return parse("t", text, SPRIG).execute(DATA)


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_language(text: str, expected: str) -> None:
    assert render(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n  {{ foo }}", 'template: t:2: function "foo" not defined'),
        ("{{$x}}", 'template: t:1: undefined variable "$x"'),
        ("\n\n {{.x.a}}", 'template: t:3:5: executing "t" at <.x.a>: can\'t evaluate field a in type interface {}'),
        ("\n{{.x.a}}", 'template: t:2:4: executing "t" at <.x.a>: can\'t evaluate field a in type interface {}'),
        ("{{.n.a.b}}", 'template: t:1:4: executing "t" at <.n.a.b>: nil pointer evaluating interface {}.a'),
        ('{{fail "no"}}', 'template: t:1:2: executing "t" at <fail "no">: error calling fail: no'),
        (
            "{{index .l 7}}",
            'template: t:1:2: executing "t" at <index .l 7>: error calling index: index out of range: 7',
        ),
        ("{{if .x}}", "template: t:1: unexpected EOF"),
        ("{{end}}", "template: t:1: unexpected {{end}}"),
        ("\n{{end}}", "template: t:2: unexpected {{end}}"),
        ("{{.x!}}", "template: t:1: unrecognized character in action: U+0021 '!'"),
        ("{{.x}\n}", "template: t:1: unrecognized character in action: U+007D '}'"),
        ("{{`a\nb`.c}}", 'template: t:2: unexpected . after term "`a\\nb`"'),
        ("{{print\n$x}}", 'template: t:2: undefined variable "$x"'),
        ("{{(1\n}}", "template: t:1: unclosed left paren"),
        ("{{+}}", 'template: t:1: bad number syntax: "+"'),
        ("{{12a}}", 'template: t:1: bad number syntax: "12a"'),
        ("{{''}}", "template: t:1: unterminated character constant"),
        ("{{(1))}}", 'template: t:1: unexpected ")" in command'),
        ("{{$x = 1}}", 'template: t:1: undefined variable "$x"'),
        ("{{(.x).y}}", 'template: t:1:6: executing "t" at <(.x).y>: can\'t evaluate field y in type int'),
        ("{{(.m).a 1}}", 'template: t:1:6: executing "t" at <(.m).a>: a is not a method but has arguments'),
        (
            "{{call .x 1}}",
            'template: t:1:2: executing "t" at <call .x 1>: error calling call: non-function 1 of type int',
        ),
        ('{{template "t"}}', "template: t: exceeded maximum template depth"),
        (
            '{{dateModify "1h" 5}}',
            'template: t:1:2: executing "t" at <dateModify "1h" 5>: error calling dateModify: '
            "wrong type for value; expected time.Time",
        ),
        (
            '{{genSignedCert "a" nil nil 1 5}}',
            'template: t:1:2: executing "t" at <genSignedCert "a" nil nil 1 5>: error calling genSignedCert: '
            "wrong type for value; expected sprig.certificate",
        ),
        (
            '{{bcrypt "a"}}',
            'template: t:1:2: executing "t" at <bcrypt "a">: error calling bcrypt: bcrypt is not supported',
        ),
        ("{{upper 3}}", 'template: t:1:8: executing "t" at <3>: expected string; found 3'),
    ],
)
def test_error_messages(text: str, expected: str) -> None:
    with pytest.raises(TemplateError) as error:
        render(text)
    assert str(error.value) == expected


def test_function_arguments() -> None:
    counts = {
        parameters: [takes(parameters, print).wrong_count(count) for count in range(4)]
        for parameters in ("", "int", "int string", "...any", "int ...any")
    }
    assert counts == {
        "": ["", "want 0 got 1", "want 0 got 2", "want 0 got 3"],
        "int": ["want 1 got 0", "", "want 1 got 2", "want 1 got 3"],
        "int string": ["want 2 got 0", "want 2 got 1", "", "want 2 got 3"],
        "...any": ["", "", "", ""],
        "int ...any": ["want at least 1 got 0", "", "", ""],
    }
    assert [takes("int ...any", print).kind_of(index).name for index in range(3)] == [
        "int",
        "interface {}",
        "interface {}",
    ]
    assert [takes("any", print, lazy=lazy).lazy for lazy in (True, False)] == [True, False]
    assert not takes("any", print).lazy


def test_associated_templates() -> None:
    template = parse("main", 'a{{ template "part" . }}{{ include "part" 2 | printf "%s!" }}', SPRIG)
    template.add("parts", '{{ define "part" }}[{{ . }}]{{ end }}{{ define "wrong" }}\n{{ .x.y }}{{ end }}')
    assert template.names == ["main", "part", "parts", "wrong"]
    assert template.execute(1) == "a[1][2]!"
    assert template.execute(3, "part") == "[3]"
    template.add("part", "<{{ . }}>")
    assert template.execute(1) == "a<1><2>!"
    for name, data, error in (
        (
            "wrong",
            DATA,
            'template: parts:2:5: executing "wrong" at <.x.y>: can\'t evaluate field y in type interface {}',
        ),
        ("other", 1, 'template: other: no template "other" associated with template "main"'),
    ):
        with pytest.raises(TemplateError) as caught:
            template.execute(data, name)
        assert str(caught.value) == error
    with pytest.raises(TemplateError) as caught:
        parse("t", '{{ include "none" . }}', SPRIG).execute(1)
    assert str(caught.value).endswith(
        'error calling include: template: no template "none" associated with template "t"'
    )


def test_excessive_nesting_is_rejected() -> None:
    with pytest.raises(TemplateError, match=r"^template: t: nested too deeply$"):
        render("{{ if .x }}" * 5_000)
