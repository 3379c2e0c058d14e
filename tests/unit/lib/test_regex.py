from __future__ import annotations

from collections.abc import Callable

import pytest
import re2

from pilot.lib.regex import MAX_COST, find_fault, is_found, is_searchable, one_budget

LARGE = r"(?i)[\pL]{300}"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The patterns that were compiled."""
    patterns: list[str] = []
    compile_pattern: Callable[..., object] = re2.compile

    def record(pattern: str, **options: object) -> object:
        patterns.append(pattern)
        return compile_pattern(pattern, **options)

    monkeypatch.setattr(re2, "compile", record)
    return patterns


def test_program_of_eight_megabytes_is_refused() -> None:
    assert find_fault(LARGE) == "pattern too large - compile failed"


@pytest.mark.parametrize("pattern", [LARGE, "(?i)" + r"\PL" * 100, "(?is)" + r"\W" * 500, r"\pL{26}", "("])
def test_large_patterns_of_one_object_end_the_budget(compiled: list[str], pattern: str) -> None:
    with one_budget():
        faults = [find_fault(f"{pattern}{number}") for number in range(1000)]
    assert "too complex" in faults[-1]
    assert len(compiled) < 30


def test_many_small_patterns_of_one_object_are_accepted(compiled: list[str]) -> None:
    with one_budget():
        assert not any(find_fault(f"/api/v[0-9]+/customers/[a-z0-9-]+/{number}(/.*)?$") for number in range(2000))


def test_number_of_patterns_of_one_object_is_limited(compiled: list[str]) -> None:
    with one_budget():
        for number in range(100_000):
            find_fault(f"few{number}")
    assert len(compiled) < MAX_COST / 16


def test_repeated_pattern_is_charged_once(compiled: list[str]) -> None:
    with one_budget():
        assert not any(find_fault(r"\pL{20}") for _ in range(1000))


def test_result_does_not_depend_on_the_cache() -> None:
    results = []
    for _ in range(2):
        with one_budget():
            results.append([find_fault(rf"\pL{{26}}cache{number}") for number in range(20)])
    assert results[0] == results[1]
    assert results[0][0] == "" != results[0][-1]


def test_each_object_has_its_own_budget(compiled: list[str]) -> None:
    for number in range(100):
        with one_budget():
            assert find_fault(rf"\pL{{26}}own{number}") == ""


def test_large_expression_is_searched_without_a_message_of_the_library(capfd: pytest.CaptureFixture[str]) -> None:
    assert not is_found("(x|y){900}" * 8, "1.32.0" * 20)
    assert is_found("^1[.]3", "1.32.0")
    assert not is_found("1", "1" * 10_000)
    assert not capfd.readouterr().err


def test_large_expression_is_compiled_once_for_all_patches_of_an_object(compiled: list[str]) -> None:
    pattern = r"(\pL|\d)*(\pL|\d)*repeated"
    for _ in range(3):
        is_searchable(pattern)
        is_found(pattern, "1.32.0")
    assert compiled == [pattern]
