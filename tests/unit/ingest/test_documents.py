from __future__ import annotations

import json
import math
import pathlib
import random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pilot.ingest.files import documents
from pilot.ingest.files.chunks import Chunk
from pilot.ingest.files.documents import SyntaxFault, read_chunk, read_documents

ROOT = pathlib.Path(__file__).resolve().parents[3]


def plain(text: str) -> Any:
    (document,) = read_documents(text.encode(), "a.yaml")
    return document.plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("+7", 7),
        ("0x1F", 31),
        ("0b11", 3),
        ("010", 8),
        ("0o10", 8),
        ("08", "08"),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("22:22", "22:22"),
        ("1.2.3", "1.2.3"),
        ("-x", "-x"),
        ("10.0.0.1", "10.0.0.1"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("yes", True),
        ("Off", False),
        ("y", "y"),
        ("'yes'", "yes"),
        ('"1"', "1"),
        ("!!str 1", "1"),
        ("!!int '1'", 1),
        ("~", None),
        ("text", "text"),
        ("1" * 5000, "1" * 5000),
        ("0x" + "f" * 5000, "0x" + "f" * 5000),
    ],
)
def test_scalars_have_the_types_of_kubernetes(text: str, value: object) -> None:
    assert plain(f"a: {text}") == {"a": value}
    assert type(plain(f"a: {text}")["a"]) is type(value)


@pytest.mark.parametrize("data", [b"a: 1\nb: \xe9\n", b"a: 1\nb: \0\n"])
def test_invalid_utf_8_is_reported_with_its_line(data: bytes) -> None:
    with pytest.raises(SyntaxFault) as fault:
        read_documents(data, "a.yaml")
    assert fault.value.line in (2, 3)  # the line of the byte, or the next one


def test_keys_are_strings() -> None:
    assert plain("{80: a, true: b, 1.5: c, null: d, e: f}") == {
        "80": "a",
        "true": "b",
        "1.5": "c",
        "null": "d",
        "e": "f",
    }


def test_documents_have_start_lines() -> None:
    documents = read_documents(b"# first\n---\na: 1\n---\n---\n# nothing\n---\n\nb: 2\n...\n---\nc: 3\n", "a.yaml")
    assert [(d.plain, d.line) for d in documents] == [({"a": 1}, 3), ({"b": 2}, 9), ({"c": 3}, 12)]


def test_equal_strings_share_memory() -> None:
    labels = [plain(f"{{name: {name}, labels: {{team: a-long-name}}}}")["labels"] for name in "ab"]
    assert labels[0]["team"] is labels[1]["team"]
    assert labels[0] is not labels[1]


@pytest.mark.parametrize("scalar", ["k" * 64, "k" * 65, "1" * 64, "1" * 65, "<<x", "!!str <<", "'<<'"])
def test_keys_are_parsed_like_values(scalar: str) -> None:
    (key,) = plain(f"{scalar}: a")
    assert key == str(plain(f"a: {scalar}")["a"])


def test_anchors_aliases_and_merges() -> None:
    assert plain("a: &x {b: 1, c: 2}\nd: *x\ne: {<<: *x, c: 3}\nf: {<<: [{g: 1}, {g: 2, h: 3}]}") == {
        "a": {"b": 1, "c": 2},
        "d": {"b": 1, "c": 2},
        "e": {"b": 1, "c": 3},
        "f": {"g": 1, "h": 3},
    }


def test_anchors_on_scalars_and_keys() -> None:
    assert plain("&k a: &v 1\n*k : *v\nb: [*v, *k]\n") == {"a": 1, "b": [1, "a"]}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a: &x [1, 2]\nb: *x", 3),
        ("a: &x 1\nb: [*x, *x]", 2),
        ("a: &x {b: 1}\nc: *x", 3),
        ("a: &x {b: 1}\nc: {<<: *x}", 3),
    ],
)
def test_aliases_may_add_a_limited_number_of_values(text: str, values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_ALIASED_VALUES", values)
    assert plain(f"{text}\n---\n") == plain(text)
    monkeypatch.setattr(documents, "MAX_ALIASED_VALUES", values - 1)
    with pytest.raises(SyntaxFault, match=f"aliases add more than {values - 1} values"):
        plain(text)


def test_aliases_of_aliases_are_refused_before_they_are_expanded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40)]
    with pytest.raises(SyntaxFault, match="aliases add more than 100000 values"):
        plain("\n".join(lines))


@pytest.mark.parametrize("text", ["a: &x {}\nb: [{}]", "a: &x {{k: {}}}\nb: [{}]", "a: &x {{{}: k}}\nb: [{}]"])
def test_one_long_text_aliased_thousands_of_times_is_refused(text: str) -> None:
    aliases = ", ".join(["*x"] * 5000)
    assert plain(text.format("t" * 500, aliases))
    with pytest.raises(SyntaxFault, match="aliases add more than 4194304 characters"):
        plain(text.format("t" * 1000, aliases))


def test_limits_of_aliases_apply_to_each_document() -> None:
    text = f"a: &x {'t' * 1000}\nb: [{', '.join(['*x'] * 4000)}]"
    assert len(read_documents("\n---\n".join([text] * 3).encode(), "a.yaml")) == 3


def test_documents_without_aliases_have_no_limit_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_ALIASED_VALUES", 0)
    monkeypatch.setattr(documents, "MAX_ALIASED_CHARACTERS", 0)
    assert plain("a: [b, c]") == {"a": ["b", "c"]}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_thousands_of_tag_directives_are_refused_before_they_are_compared(encoding: str) -> None:
    assert read_documents(b"%TAG !a! tag:a\n--- b", "")[0].plain == "b"
    directives = "".join(f"%TAG !{number}! a\n" for number in range(70_000))
    with pytest.raises(SyntaxFault, match="more than 64 %TAG directives"):
        read_documents(f"{directives}--- b".encode(encoding), "")


def test_aliases_can_be_refused() -> None:
    assert read_documents(b"a: &x b", "", allow_aliases=False)[0].plain == {"a": "b"}
    with pytest.raises(SyntaxFault, match="aliases are not supported in this text") as fault:
        read_documents(b"a: &x b\nc: *x", "", allow_aliases=False)
    assert fault.value.line == 2


def test_repeated_key() -> None:
    (document,) = read_documents(b"a: 1\nb:\n  c: 1\n  c: 2\n", "a.yaml")
    assert document.plain == {"a": 1, "b": {"c": 2}}
    assert document.repeated == (("c", 4),)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: [", 3),
        ("a: 1\n\tb: 2", 2),
        ("a: b: c", 1),
        ("a: *x", 1),
        ("a: !!python/object:os.system x", 1),
        ("[a]: b", 1),
        ("a: 1\n---\n'b", 3),
        ("a: {<<: 1}", 1),
    ],
)
def test_syntax_error_has_a_line(text: str, line: int) -> None:
    with pytest.raises(SyntaxFault) as fault:
        read_documents(text.encode(), "a.yaml")
    assert fault.value.line == line


@pytest.mark.parametrize("data", [b"a: \xff", b"a: \x00", b"[" * 3000 + b"]" * 3000, b'a: "\\ud800"'])
def test_invalid_yaml(data: bytes) -> None:
    with pytest.raises(SyntaxFault):
        read_documents(data, "a.yaml")


def test_alias_expansion_is_limited() -> None:
    levels = "\n".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 12))
    with pytest.raises(SyntaxFault, match="aliases"):
        read_documents(f"l0: &l0 [x]\n{levels}".encode(), "a.yaml")


def test_json() -> None:
    assert [d.plain for d in read_documents(b'{"a": [1, "x", null]}', "a.json")] == [{"a": [1, "x", None]}]
    assert read_documents(b" \n", "a.json") == []


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "List", "items": [{"a": 1}, [2], "x", null], "b": {"c": []}, "kind": "Last"}',
        '{"items": [], "a": 1}',
        '{"items": null}',
        '{"items": {"a": 1}}',
        '{"a": "b"}',
        "[1, 2]",
        "7",
    ],
)
def test_large_json_equals_small_json(text: str) -> None:
    (large,) = read_documents(text.encode() + b" " * (1 << 21), "a.json")
    (small,) = read_documents(text.encode(), "a.json")
    assert large.plain == small.plain


@pytest.mark.parametrize(
    "text",
    ['{"items": [{"a": 1},\n {"a" 1}]}', '{"items": [\n1}', '{"a":\n x}', '{"items": []}\n1', '{"items": [\n"\xff"]}'],
)
def test_large_json_has_the_same_errors_as_small_json(text: str) -> None:
    faults = []
    for data in (text.encode("latin-1"), text.encode("latin-1") + b" " * (1 << 21)):
        with pytest.raises(SyntaxFault) as fault:
            read_documents(data, "a.json")
        faults.append((str(fault.value), fault.value.line))
    assert faults[0] == faults[1]


@pytest.mark.parametrize(
    ("data", "line"),
    [(b'{"a": 1,\n"b": }', 2), (b"{", 0), (b'"\\ud800"', 0), (b"\xff", 0), (b"[" * 3000 + b"]" * 3000, 0)],
)
def test_invalid_json(data: bytes, line: int) -> None:
    with pytest.raises(SyntaxFault) as fault:
        read_documents(data, "a.json")
    assert line in (0, fault.value.line)


_texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Co", "Cn"]))
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc:-#'\" ", max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text("xyz", min_size=1), _values, min_size=1))
def test_quoted_yaml_round_trips(value: dict[str, Any]) -> None:
    quoted = yaml.safe_dump(
        value, allow_unicode=True, default_style='"'
    )  # PyYAML leaves text such as 0E0 unquoted, which is a number elsewhere
    assert plain(quoted) == value


@given(
    st.dictionaries(
        st.text("xyz", min_size=1), st.integers() | st.booleans() | st.none() | st.text("abc -"), min_size=1
    )
)
def test_plain_scalars_round_trip(value: dict[str, Any]) -> None:
    assert plain(yaml.safe_dump(value)) == value


TEXT = b"""a: 0
---
kind: X
spec:
  http:
  - match:
    - uri:
        regex: (
      headers: {x-a.b: {exact: 1}}
  - {}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("", 3),
        ("kind", 3),
        ("spec", 4),
        ("spec.http", 5),
        ("spec.http[0].match[0].uri.regex", 8),
        ("spec.http[0].match[0].headers[x-a.b].exact", 9),
        ("spec.http[1]", 10),
        ("spec.http[1].route", 10),
        ("spec.http[7]", 5),
        ("metadata.name", 3),
    ],
)
def test_line_of_a_path(path: str, line: int) -> None:
    _, document = read_documents(TEXT, "a.yaml")
    assert document.line_of(path) == line


@pytest.mark.parametrize(
    ("path", "line"), [("b.c", 3), ("d.c", 3), ("e.c", 5), ("e.g", 6), ("f", 7), ("f.i", 9), ("true", 10)]
)
def test_line_of_repeated_merged_and_aliased_values(path: str, line: int) -> None:
    """An aliased value has the line of its anchor, a merged one that of the merge, and a repeated key its last line."""
    text = b"---\nb: &x\n  c: 1\nd: *x\ne:\n  g: {<<: *x}\nf:\n  i: 1\n  i: 2\nyes: 1\n"
    (document,) = read_documents(text, "a.yaml")
    assert document.line_of(path) == line


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('{"a": {"b": [1, 2]}}', [1, 1, 1]),
        ('\n{"a": {"b": [1, 2]}}\n', [2, 2, 2]),
        ('{\n"a": {\n\n "b": [\n1, 2\n]}}', [2, 4, 5]),
    ],
)
def test_line_of_a_path_in_json(text: str, lines: list[int]) -> None:
    (document,) = read_documents(text.encode(), "a.json")
    assert [document.line_of(path) for path in ("a", "a.b", "a.b[0]")] == lines


def test_line_of_a_path_in_json_that_is_not_yaml() -> None:
    (document,) = read_documents(
        b'{"a": "\\ud83d\\ude00 \\"{\\n",\n\t"b\\"": [\r\n{}, [],\n1.5e3, {"c": true,\n"a": 1, "a":\n2}]}', "a.json"
    )
    paths = ("a", 'b"', 'b"[0]', 'b"[1]', 'b"[2]', 'b"[3]', 'b"[3].c', 'b"[3].a', 'b"[9]', "b", "")
    assert [document.line_of(path) for path in paths] == [1, 2, 3, 3, 4, 4, 4, 5, 2, 1, 1]


def node_lines(value: Any, node: yaml.Node) -> Any:
    """Return the lines inside a value according to PyYAML's node tree."""
    if isinstance(node, yaml.MappingNode):
        pairs = zip(value.items(), node.value, strict=True)
        return {key: place(k.start_mark.line + 1, node_lines(inner, v)) for (key, inner), (k, v) in pairs}
    if isinstance(node, yaml.SequenceNode):
        return [place(v.start_mark.line + 1, node_lines(inner, v)) for inner, v in zip(value, node.value, strict=True)]
    return None


def place(line: int, inside: Any) -> Any:
    return line if inside is None else (line, inside)


def random_yaml(rng: random.Random, indent: str = "", depth: int = 0) -> str:
    """Return the value of a key, or a whole document."""
    if depth > 3 or (depth and rng.random() < 0.4):
        return rng.choice(
            (" a # c\n", " 'b'\n", " ~\n", "\n", " [x, {y: z}]\n", " {u: [v,\n   w]}\n", f" |\n{indent}  l\n\n")
        )
    is_list = depth and rng.random() < 0.4
    lines = [
        indent
        + (f"- k{n}:" if is_list else f"k{n}:")
        + random_yaml(rng, indent + ("    " if is_list else "  "), depth + 1)
        for n in range(rng.randint(1, 4))
    ]
    return ("\n" if depth else "") + "# c\n".join(lines)


def assert_lines(text: bytes) -> None:
    trees = [tree for tree in yaml.compose_all(text, yaml.CSafeLoader) if tree.tag != "tag:yaml.org,2002:null"]
    documents = read_chunk(Chunk(text, 0))
    assert [document.line for document in documents] == [tree.start_mark.line + 1 for tree in trees]
    for document, tree in zip(documents, trees, strict=True):
        assert document.outline.inside() == node_lines(document.plain, tree), text[:500]


def test_lines_match_pyyaml_nodes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        assert_lines(random_yaml(rng).encode())
    for folder in ("samples", "deploy", "webhook"):
        for path in (ROOT / folder).rglob("*.yaml"):
            if "{{" not in (text := path.read_text()):
                assert_lines(text.encode())


def test_lines_of_random_json_match_yaml(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        text = "\n" * rng.randrange(3) + json.dumps({"top": random_json(rng, 4)}, indent=rng.choice((0, 1, 2)))
        (document,) = read_documents(text.encode(), "a.json")
        (expected,) = read_chunk(Chunk(text.encode(), 0))
        assert document.outline.inside() == expected.outline.inside(), text


def random_json(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(6 if depth else 4)
    if kind < 4:
        return rng.choice((None, True, -3, 1.5, "", "a, {b}: [c]", 'tab\t"quoted" é'))
    items = [random_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    return items if kind == 4 else {f"key {number}": item for number, item in enumerate(items)}


@pytest.mark.parametrize("indent", [None, 2])
def test_lines_of_large_json_lists_match_small_ones(indent: int | None) -> None:
    """Items of large lists are parsed one by one. Every two are equal."""
    items = [
        {"kind": "Service", "metadata": {"name": f"s{n // 2}"}, "spec": {"ports": [{"port": 1}, {"port": n // 2}]}}
        for n in range(40)
    ]
    text = "\n" + json.dumps({"kind": "List", "items": items}, indent=indent)
    (small,) = read_documents(text.encode(), "a.json")
    (large,) = read_documents(text.encode() + b" " * (1 << 20), "a.json")
    suffixes = ("", ".kind", ".metadata.name", ".spec.ports[1].port", ".spec.ports[7]", ".spec.type")
    paths = [f"items[{n}]{path}" for n in (0, 39, 39, 7, 6, 40) for path in suffixes]
    lines = [large.line_of(path) for path in paths]
    assert lines[:-6] == [small.line_of(path) for path in paths][:-6]
    assert lines[:12] == ([2] * 12 if indent is None else [5, 6, 8, 16, 11, 10, 629, 630, 632, 640, 635, 634])
    assert lines[-6:] == [1] * 6


def test_value_limit_includes_aliases_of_a_long_list() -> None:
    """A text of 20 KB that expands to more values than permitted."""
    text = "a: &a [" + ", ".join(["1"] * 2000) + "]\nb: [" + ", ".join(["*a"] * 500) + "]\n"
    with pytest.raises(SyntaxFault, match="aliases add more than 100000 values") as fault:
        read_documents(text.encode(), "a.yaml")
    assert fault.value.line == 2


def test_line_of_an_invalid_character() -> None:
    with pytest.raises(SyntaxFault) as fault:
        read_documents(b"\n\na: !!str \x01\n", "a.yaml")
    assert fault.value.line == 3
