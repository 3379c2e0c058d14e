"""What the documents say is so: generated pages are fresh, links lead somewhere, commands exist."""
from __future__ import annotations

import pathlib
import re
import shlex

import pytest

from pilot.cli.pilotctl import build_parser
from pilot.settings.document import document, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "deploy").rglob("*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in README.splitlines() if line.startswith("    ")]


def test_the_settings_are_documented_as_they_are() -> None:
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == document(), "python -m pilot.settings > docs/settings.md"


def test_a_stale_document_is_noticed(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    stale = tmp_path / "settings.md"
    stale.write_text(document().replace("15010", "15011"), encoding="utf-8")
    assert main(["--check", str(stale)]) == 1
    assert "is stale" in capsys.readouterr().err
    stale.write_text(document(), encoding="utf-8")
    assert main(["--check", str(stale)]) == 0


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path: pathlib.Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_readme_starts_with_the_sample_and_the_tests() -> None:
    assert next(command for command in COMMANDS if command.startswith("python3 dev.py")) == "python3 dev.py sample"
    assert "python3 dev.py test" in COMMANDS


@pytest.mark.parametrize("command", [command for command in COMMANDS if "pilotctl" in command])
def test_commands_of_pilotctl_exist(command: str) -> None:
    words = re.split(r"\s{2,}", command.partition("pilotctl ")[2])[0].replace("clusters|listeners|routes|endpoints|secrets", "clusters")
    assert build_parser().parse_args(shlex.split(words)).run


def test_commands_of_make_and_dev_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z]+)", README + (ROOT / "deploy" / "README.md").read_text(encoding="utf-8"))) <= targets
    helped = (ROOT / "dev.py").read_text(encoding="utf-8")
    assert all(f"dev.py {task}" in helped for task in re.findall(r"python3 dev.py ([a-z]+)", README))


def test_every_target_of_make_explains_itself() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)[0].split())
    assert phony == set(re.findall(r"^([a-z]+):.*## ", text, re.MULTILINE))
