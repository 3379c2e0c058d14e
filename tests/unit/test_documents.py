"""What the documents say is so: generated pages are fresh, links lead somewhere, commands exist."""
from __future__ import annotations

import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from pilot.cli.pilotctl import main as pilotctl
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
    words = re.split(r"\s{2,}", command.partition("pilotctl ")[2])[0].replace("clusters|listeners|routes|endpoints|secrets|all", "clusters")
    assert pilotctl([*shlex.split(words), "--help"]) == 0  # help is printed once all words were understood


def test_the_site_builds_without_a_warning(tmp_path: pathlib.Path) -> None:
    options = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(tmp_path / "trees")]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    assert "RBAC: access denied" in (tmp_path / "troubleshoot.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted(page.stem for page in (ROOT / "docs").glob("*.md") if page.stem != "index"))
def test_every_page_is_in_the_contents_of_the_site(page: str) -> None:
    assert page in (ROOT / "docs" / "index.md").read_text(encoding="utf-8").split()


def test_commands_of_make_and_dev_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z]+)", README + (ROOT / "deploy" / "README.md").read_text(encoding="utf-8"))) <= targets
    helped = (ROOT / "dev.py").read_text(encoding="utf-8")
    assert all(f"dev.py {task}" in helped for task in re.findall(r"python3 dev.py ([a-z]+)", README))


def test_every_target_of_make_explains_itself() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)[0].split())
    assert phony == set(re.findall(r"^([a-z]+):.*## ", text, re.MULTILINE))
