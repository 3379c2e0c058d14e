"""YAML that is read line by line: the same values and lines as libyaml's, or none at all."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from pilot.ingest.block_yaml import Block, NotSimple, read_block
from pilot.ingest.chunks import Chunk, split
from pilot.ingest.documents import SyntaxFault, new_reader, new_words, parse_chunk, read_chunk

ROOT = pathlib.Path(__file__).resolve().parents[3]
KEYS = [*"abcdef", "d-e", "x.y/z", "8080", "yes", "null", "1.5", "0x10", "08", '"q r"', "'s'", '"8080"']
BLOCKS = ("|", "|-", ">", ">-")
ODD_KEYS = ["<<", "é", "? k", "a b", "~", "-k", "*x", "&x a", "!!str k", "'it''s'", "[a]", "{a: b}"]
VALUES = [
    "a",
    "b-c",
    "x.y/z",
    "1",
    "0x1F",
    "010",
    "1e3",
    "yes",
    "~",
    "null",
    '"q"',
    "'s'",
    "[]",
    "{}",
    "[a, b]",
    "[ 'x', \"y\" ]",
    "[1, yes, '1', ~]",
    "|",
    "|-",
    ">",
    "{a: b, c: [1, 'x']}",
    "[{a: b, c: d}, {a: 1}]",
    "",
]
ODD_VALUES = [
    '"q#r" # c',
    "'it''s'",
    '"e\\n"',
    "{a: 1}",
    "{a: b} x",
    "a # c",
    "a#b",
    "a:b",
    "a: b",
    "a:",
    "http://h:80/x",
    "-1",
    "-",
    "- a",
    "---",
    "...",
    "&x a",
    "*x",
    "!!str 1",
    "|+",
    "|2",
    ">+",
    ">-",
    "@x",
    "`x",
    "%x",
    "?",
    "? a",
    ": a",
    ":a",
    "#c",
    "é",
    "a\tb",
    "$x",
    "(x)",
    "<<",
    "=",
    "{{ x }}",
    "[a",
    '"a',
    "'a",
    '"a": b',
    "[a]: b",
    "a  # c",
    "+1",
    ".5",
    ".inf",
    "22:22",
    "a]",
    "* a",
    "a &b",
    "'' ",
    '"" x',
    "| # c",
    "x\u2028y",
    "x\u00a0y",
    "\ufeff",
    "😀",
    "{a: b} # c",
    "{a: }",
    "{a: , b: c}",
    "[a b, c]",
    "[a] b",
    "[[], {}]",
    "{a: [b, {c: [d]}]}",
    "{a:b}",
    "{'a': 1, \"b\":2}",
    "[a:b, c]",
    "{a: b",
    "{a: b}}",
    "{ a: b , c: d }",
    "{a: *x}",
    "[a, b,]",
    "{a: 1, a: 2}",
    "[\"x\" 'y']",
    "{a: 0, b: ~}",
    "[-1, +1]",
    "{1: a, yes: b}",
    "[x, *y]",
    "[&x a, *x]",
    "[a: b]",
    "[a, {b: c, b: d}]",
    "[,]",
    "[a,]",
    "[-, a]",
    "['a''b']",
    "!x",
]
MARKS = " \n-:#'\"[]{}|>&*!?,%@\t~\r\0x1."


def one_line(choose: random.Random) -> str:
    indent = " " * choose.choice((0, 0, 0, 2, 2, 4, 1))
    if choose.random() < 0.08:
        return choose.choice(("", "  ", "# c", "  # c", "---", "...", "--- # c", " ---", "%YAML 1.1", "\t"))
    dash = choose.choice(("- ", "- ", "-  ", "-", "- - ")) if choose.random() < 0.25 else ""
    value = choose.choice(VALUES if choose.random() < 0.8 else ODD_VALUES)
    if choose.random() < 0.2:
        return indent + dash + value
    key = choose.choice(KEYS if choose.random() < 0.9 else ODD_KEYS)
    return f"{indent}{dash}{key}{choose.choice((': ', ': ', ':', ':  ', ' : '))}{value}"


def node(choose: random.Random, indent: int = 0, depth: int = 0) -> str:
    """What stands behind a colon, or at the beginning."""
    if depth and (depth > 3 or choose.random() < 0.3):
        if choose.random() < 0.85:
            return f" {choose.choice([value for value in VALUES if value and value not in BLOCKS])}\n"
        margins = [" " * max(indent + choose.choice((0, 0, 0, 1, -1)), 0) for _ in range(choose.randint(0, 4))]
        rows = (margin + choose.choice(("x", "- y", "k: v", "# z", "", "x ", "two words")) for margin in margins)
        return f" {choose.choice(BLOCKS)}\n" + "".join(f"{row}\n" for row in rows)
    margin = " " * (indent if choose.random() < 0.5 else max(indent - 2, 0))
    if choose.random() < 0.4 and depth:
        keys = choose.sample([*KEYS, ""], choose.randint(1, 3))
        items = (f"- {key}:{node(choose, len(margin) + 4, depth + 1)}" if key else "- a\n" for key in keys)
        return "\n" + "".join(margin + item for item in items)
    text = "".join(
        f"{' ' * indent}{key}:{node(choose, indent + 2, depth + 1)}"
        for key in choose.sample(KEYS, choose.randint(1, 4))
    )
    return "\n" + text if depth else text


def texts(choose: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        if choose.random() < 0.3:
            text = "\n".join(one_line(choose) for _ in range(choose.randint(1, 9))) + choose.choice(("", "\n"))
        else:
            text = node(choose)
            for _ in range(choose.choice((0, 0, 0, 1, 2))):
                at = choose.randrange(len(text) + 1)
                text = text[:at] + (choose.choice(MARKS) + text[at:] if choose.random() < 0.5 else text[at + 1 :])
        yield text.encode()


def lines_of(value: Any, node: yaml.Node) -> Any:
    """The lines inside of a value by PyYAML's tree of nodes; what is on one line with its parent is left out, as the parent's line says as much."""
    if isinstance(node, yaml.MappingNode):
        keys = zip(value.items(), node.value, strict=True)
        return {key: place(k.start_mark.line + 1, lines_of(inner, v)) for (key, inner), (k, v) in keys}
    if isinstance(node, yaml.SequenceNode):
        return [place(v.start_mark.line + 1, lines_of(inner, v)) for inner, v in zip(value, node.value, strict=True)]
    return None


def place(line: int, inside: Any) -> Any:
    places = inside.values() if isinstance(inside, dict) else inside or ()
    return line if all(at == line for at in places) else (line, inside)


def without_single_lines(inside: Any) -> Any:
    def short(at: Any) -> Any:
        return place(at[0], without_single_lines(at[1])) if isinstance(at, tuple) else at

    if isinstance(inside, dict):
        return {key: short(at) for key, at in inside.items()}
    return [short(at) for at in inside] if inside is not None else None


def agrees(text: bytes) -> bool:
    """Whether the text is read line by line; fails where libyaml says something else."""
    try:
        block = read_block(text, new_words())
    except NotSimple:
        return False
    assert_same(block, text)
    return True


def assert_same(block: Block, text: bytes) -> None:
    """Fails where libyaml says something else."""
    plain, line, inside = block
    try:
        documents = parse_chunk(Chunk(text, 0))
    except SyntaxFault as fault:
        raise AssertionError(text[:500]) from fault
    assert ([(repr(plain), line, ())] if line else []) == [(repr(d.plain), d.line, d.repeated) for d in documents], (
        text[:500]
    )
    for document in documents:
        try:
            tree = yaml.compose(text, yaml.CSafeLoader)
        except yaml.composer.ComposerError:  # PyYAML's trees have no anchor twice
            continue
        lines = lines_of(plain, tree)
        assert without_single_lines(inside) == lines == without_single_lines(document.outline.inside()), text[:500]


def others_like(text: bytes, choose: random.Random) -> Iterator[bytes]:
    """Texts with other values in the same places."""
    for _ in range(6):
        lines = text.decode().split("\n")
        for number, line in enumerate(lines):
            before, colon, value = line.partition(": ")
            if colon and value and choose.random() < 0.4:
                values = (
                    [value for value in VALUES if value and value not in BLOCKS]
                    if choose.random() < 0.9
                    else ODD_VALUES
                )
                lines[number] = before + colon + choose.choice(values)
        yield "\n".join(lines).encode()


def test_documents_like_others_are_read_as_libyaml_reads_them(seed: int) -> None:
    choose = random.Random(seed)
    alike = simple = 0
    for text in texts(choose, 900):
        reader = new_reader()
        for other in others_like(text, choose):
            known = reader.alike
            try:
                block = reader.read(other)
            except NotSimple:
                continue
            assert_same(block, other)
            simple += 1
            alike += reader.alike > known
    assert 100 < alike < simple


def alike(*texts: str) -> int:
    """How many of the documents are read as others were; fails where libyaml says something else of one."""
    reader = new_reader()
    for text in texts:
        assert_same(reader.read(text.encode()), text.encode())
    return reader.alike


@pytest.mark.parametrize(
    ("one", "like_it", "unlike"),
    [
        ("a: {}", "a: {}", "a: {b: {}}"),
        ("a: {}\nb:\n- c", "a: {}\nb:\n- 'd e'", "a: {}\nb:\n- c\n- c"),
        ("a: 1 # b", "a: 'x y' # c", "a: # b"),
        ("a: {b: 1}", "a: {b: 'x'}", "a: {b: 1, c: 2}"),
        ("- [a, b]", "- ['x', \"y\"]", "- [a]"),
        ("a: [{b: c}]", "a: [{b: d}]", "a: [{b: c}, {b: c}]"),
        ("a: {b: 1} # c", "a: {b: 1, c: 2} # d", "a: # c"),
        ("# a\nb: 1", "# a\nb: ~", "# b\nb: 1"),
        ("a:\n  b: 1", "a:\n  b: c", "a:\n   b: 1"),
    ],
)
def test_documents_are_alike_where_values_alone_differ(one: str, like_it: str, unlike: str) -> None:
    assert alike(*(f"{text}\n" for text in (one, like_it))) == 0
    assert alike(*(f"{text}\n" for text in (one, one, like_it))) == 1
    assert alike(*(f"{text}\n" for text in (one, like_it, unlike, like_it))) == 1
    assert alike(*(f"{text}\n" for text in (one, like_it, unlike, like_it, unlike, unlike))) == 2


def test_what_differs_in_keys_is_never_like_others() -> None:
    assert alike("a: {b, c: d}\n", "a: {e, c: f}\n", "a: {g, c: h}\n") == 0
    assert alike(*("a: |\n  b\n",) * 3) == alike(*("a: >-\n  b\n",) * 3) == 0


def test_documents_that_say_nothing_are_alike_too() -> None:
    assert alike(*("---\n# nothing\n",) * 4) == 2


def test_few_layouts_of_as_many_lines_are_remembered() -> None:
    assert alike(*(f"key-{number}: {value}\n" for value in range(3) for number in range(8))) == 8
    assert alike(*(f"key-{number}: {value}\n" for value in range(3) for number in range(12))) == 8


def test_where_most_documents_are_unlike_no_more_are_compared() -> None:
    different = [f"key-{number}: a\n" for number in range(102)]
    same = ["x: 1\ny: 2\n"] * 5
    assert alike(*same, *different[:90], *same) == 3 + 5
    assert alike(*same, *different, *same) == 3
    assert alike(*same * 30, *different, *same) == 3 + 29 * 5 + 5


def test_documents_that_are_not_alike_are_read_too() -> None:
    reader = new_reader()
    for number in range(300):
        text = "".join(f"key-{number}-{inner}: {inner}\n" for inner in range(1 + number % 7)).encode()
        for _ in range(1 + number % 2):
            assert_same(reader.read(text), text)
    for number in range(5):
        text = f"a: {number}\nb: [c]\n".encode()
        assert_same(reader.read(text), text)


def test_what_is_like_others_is_made_anew() -> None:
    reader = new_reader()
    made = [
        reader.read(f"---\na:\n  b: {number}\nc:\n- [x]\n- d: {{e: f, g: [h]}}\ni:\n".encode()).plain
        for number in range(5)
    ]
    assert reader.alike == 3
    assert made == [{"a": {"b": number}, "c": [["x"], {"d": {"e": "f", "g": ["h"]}}], "i": None} for number in range(5)]
    parts = [
        part
        for one in made
        for part in (one, one["a"], one["c"], one["c"][0], one["c"][1], one["c"][1]["d"], one["c"][1]["d"]["g"])
    ]
    assert len({id(part) for part in parts}) == len(parts)


def test_random_texts_are_read_as_libyaml_reads_them(seed: int) -> None:
    read = sum(agrees(text) for text in texts(random.Random(seed), 6_000))
    assert 1_000 < read < 5_000


def test_files_are_read_as_libyaml_reads_them() -> None:
    paths = sorted(
        path for folder in ("samples", "deploy", "webhook", "tests") for path in (ROOT / folder).rglob("*.yaml")
    )
    read = [agrees(chunk.text) for path in paths for chunk in split(path.read_bytes())]
    assert read.count(True) > read.count(False)


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb:\n- c: [x, 1]\n  d: {}\n-   e: 'x y'\n    f:\n    - g\nh:\n",
        '---\n# c\na: 1 # c\n\n  # d\nb: "x # y"\n',
        "- a\n- b: 1\n  c:\n- d\n",
        "a: |\n  x\n\n   y\n  # z\nb: |-\n    z\n\nc: |\n",
        "a: |\n  x",
        "a: 1\r\nb: |\r\n  x\r\n  y\r\n",
        "a: {b, c: d}\nb: {c, d: e}\n",
        "a: {b, c: d}\nb: {c, d: e}\nc: {d, e: 0}\n",
        "a: >\n  one\n  two \n\n  three\n\n\n  four\nb: >-\n\n  x\n  y\n\n",
        'a: {b: [c, d]}\ne: "\\u00e9"\n',
        "a: ü\n'é': 1\n",
        "",
        "# nothing\n",
        "---\n",
    ],
)
def test_what_is_written_simply_is_read_line_by_line(text: str) -> None:
    assert agrees(text.encode())


def test_a_large_text_is_read_in_parts() -> None:
    item = "- name: item-{}\n  text: |\n    one\n\n    two\n"
    text = "items:\n" + "".join(item.format(number) for number in range(5_000))
    assert len(text) > 3 * (1 << 16)
    assert agrees(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2\n",
        "a: &x 1\n",
        "a: *x\n",
        "a: !!str 1\n",
        "a: b\n  c\n",
        "a: b: c\n",
        "a:\tb\n",
        "a: 1\rb: 2\n",
        "a: 1\n b: 2\n",
        "a:\n    b: 1\n  c: 2\n",
        "a: 1\n---\nb: 1\n",
        "a: 1\n...\n",
        "%YAML 1.1\n---\na: 1\n",
        "<<: {a: 1}\n",
        "? a\n",
        "a: >+\n  b\n",
        "a: >\n  b\n   c\n",
        "a: |+\n  b\n",
        "a: 'b\n  c'\n",
        "[a]\n",
        "a\n",
        "- a\nb: 1\n",
        "a: 1\n- b\n",
        "-\n  a: 1\n",
        "  a: 1\n",
        "\ufeffa: 1\n",
        "a: \u2028\n",
        "a: \0\n",
        "a: {b: 1, b: 2}\n",
        'a: "b": c\n',
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(NotSimple):
        read_block(text.encode(), new_words())


def test_what_is_no_text_and_what_is_too_deep_are_refused() -> None:
    deep = "".join("  " * level + "a:\n" for level in range(200))
    for data in (b"a: \xff\n", "a: 1\n".encode("utf-16"), deep.encode()):
        with pytest.raises(NotSimple):
            read_block(data, new_words())


def test_values_are_of_one_file_and_lists_of_one_place() -> None:
    words = new_words()
    first, second, third = (read_block(b"a: [x]\nb: long-text\nc: {}\nd: [x]\n", words).plain for _ in range(3))
    assert first == second == third == {"a": ["x"], "b": "long-text", "c": {}, "d": ["x"]}
    lists = [read[key] for read in (first, second, third) for key in "acd"]
    assert len({id(made) for made in lists}) == len(lists)
    assert first["b"] is second["b"]


def test_more_words_than_are_remembered_are_read_right() -> None:
    text = "".join(f"key-{number}: value-{number}\nlist-{number}: [{number}, x]\n" for number in range(12_000))
    plain = read_block(text.encode(), new_words()).plain
    assert [plain[f"key-{number}"] for number in range(12_000)] == [f"value-{number}" for number in range(12_000)]
    assert [plain[f"list-{number}"] for number in range(12_000)] == [[number, "x"] for number in range(12_000)]


def test_lines_are_those_of_the_file() -> None:
    reader = new_reader()
    for number in range(4):
        (document,) = read_chunk(Chunk(b"---\na: %d\nb:\n- c\n" % number, 10), reader)
        assert (document.line, [document.line_of(path) for path in ("a", "b", "b[0]", "b[1]", "z")]) == (
            12,
            [12, 13, 14, 13, 12],
        )
