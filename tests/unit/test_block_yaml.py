"""YAML that is read line by line: the same values and lines as libyaml's, or none at all."""
from __future__ import annotations

import pathlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from pilot.ingest.block_yaml import NotSimple, read_block
from pilot.ingest.chunks import Chunk, split
from pilot.ingest.documents import SyntaxFault, new_words, parse_chunk

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEYS = [*"abcdef", "d-e", "x.y/z", "8080", "yes", "null", "1.5", "0x10", "08", '"q r"', "'s'", '"8080"']
ODD_KEYS = ["<<", "é", "? k", "a b", "~", "-k", "*x", "&x a", "!!str k", "'it''s'", "[a]", "{a: b}"]
VALUES = [
    "a", "b-c", "x.y/z", "1", "0x1F", "010", "1e3", "yes", "~", "null", '"q"', "'s'", "[]", "{}", "[a, b]", "[ 'x', \"y\" ]", "[1, yes, '1', ~]",
    "|", "|-", "",
]  # fmt: skip
ODD_VALUES = [
    '"q#r" # c', "'it''s'", '"e\\n"',
    "{a: 1}", "{a: b} x", "a # c", "a#b", "a:b", "a: b", "a:", "http://h:80/x", "-1", "-", "- a", "---", "...", "&x a",
    "*x", "!!str 1", "|+", "|2", ">", ">-", "@x", "`x", "%x", "?", "? a", ": a", ":a", "#c", "é", "a\tb", "$x", "(x)", "<<", "=", "{{ x }}", "[a",
    '"a', "'a",
    '"a": b', "[a]: b", "a  # c", "+1", ".5", ".inf", "22:22", "a]", "* a", "a &b", "'' ", '"" x', "| # c", "x\u2028y", "x\u00a0y", "\ufeff", "😀",
    "[x, *y]", "[&x a, *x]", "[a: b]", "[a, {b: c, b: d}]", "[,]", "[a,]", "[-, a]", "['a''b']", "!x",
]  # fmt: skip
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
            return f" {choose.choice(VALUES[:-3])}\n"
        margins = [" " * max(indent + choose.choice((0, 0, 0, 1, -1)), 0) for _ in range(choose.randint(0, 4))]
        rows = (margin + choose.choice(("x", "- y", "k: v", "# z", "")) for margin in margins)
        return f" {choose.choice(('|', '|-'))}\n" + "".join(f"{row}\n" for row in rows)
    margin = " " * (indent if choose.random() < 0.5 else max(indent - 2, 0))
    if choose.random() < 0.4 and depth:
        keys = choose.sample([*KEYS, ""], choose.randint(1, 3))
        items = (f"- {key}:{node(choose, len(margin) + 4, depth + 1)}" if key else "- a\n" for key in keys)
        return "\n" + "".join(margin + item for item in items)
    text = "".join(f"{' ' * indent}{key}:{node(choose, indent + 2, depth + 1)}" for key in choose.sample(KEYS, choose.randint(1, 4)))
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
        plain, line, inside = read_block(text, new_words())
    except NotSimple:
        return False
    try:
        documents = parse_chunk(Chunk(text, 0))
    except SyntaxFault as fault:
        raise AssertionError(text[:500]) from fault
    assert ([(repr(plain), line, ())] if line else []) == [(repr(d.plain), d.line, d.repeated) for d in documents], text[:500]
    for document in documents:
        lines = lines_of(plain, yaml.compose(text, yaml.CSafeLoader))
        assert without_single_lines(inside) == lines == without_single_lines(document.outline.inside()), text[:500]
    return True


def test_random_texts_are_read_as_libyaml_reads_them(seed: int) -> None:
    read = sum(agrees(text) for text in texts(random.Random(seed), 6_000))
    assert 1_000 < read < 5_000


def test_files_are_read_as_libyaml_reads_them() -> None:
    paths = sorted(path for folder in ("samples", "deploy", "webhook", "tests") for path in (ROOT / folder).rglob("*.yaml"))
    read = [agrees(chunk.text) for path in paths for chunk in split(path.read_bytes())]
    assert read.count(True) > read.count(False)


@pytest.mark.parametrize("text", [
    "a: 1\nb:\n- c: [x, 1]\n  d: {}\n-   e: 'x y'\n    f:\n    - g\nh:\n", "---\n# c\na: 1 # c\n\n  # d\nb: \"x # y\"\n", "- a\n- b: 1\n  c:\n- d\n",
    "a: |\n  x\n\n   y\n  # z\nb: |-\n    z\n\nc: |\n", "a: |\n  x", "a: {b: [c, d]}\ne: \"\\u00e9\"\n", "a: ü\n'é': 1\n", "", "# nothing\n", "---\n",
])  # fmt: skip
def test_what_is_written_simply_is_read_line_by_line(text: str) -> None:
    assert agrees(text.encode())


def test_a_large_text_is_read_in_parts() -> None:
    item = "- name: item-{}\n  text: |\n    one\n\n    two\n"
    text = "items:\n" + "".join(item.format(number) for number in range(5_000))
    assert len(text) > 3 * (1 << 16)
    assert agrees(text.encode())


@pytest.mark.parametrize("text", [
    "a: 1\na: 2\n", "a: &x 1\n", "a: *x\n", "a: !!str 1\n", "a: b\n  c\n", "a: b: c\n", "a:\tb\n", "a: 1\r\n", "a: 1\n b: 2\n",
    "a:\n    b: 1\n  c: 2\n",
    "a: 1\n---\nb: 1\n", "a: 1\n...\n", "%YAML 1.1\n---\na: 1\n",
    "<<: {a: 1}\n", "? a\n", "a: >\n  b\n", "a: |+\n  b\n", "a: 'b\n  c'\n", "[a]\n", "a\n",
    "- a\nb: 1\n", "a: 1\n- b\n", "-\n  a: 1\n", "  a: 1\n", "\ufeffa: 1\n", "a: \u2028\n", "a: \0\n", "a: {b: 1, b: 2}\n", "a: \"b\": c\n",
])  # fmt: skip
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
    block = read_block(b"---\na: 1\nb:\n- c\n", new_words(), 10)
    assert block.line == 12
    assert block.inside == {"a": 12, "b": (13, [14])}
