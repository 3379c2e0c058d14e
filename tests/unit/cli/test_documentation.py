"""Documentation checks: generated pages are current, links resolve and commands exist."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import runpy
import shlex
import subprocess
import sys

import pytest

from pilot.cli.pilot_agent import main as pilot_agent
from pilot.cli.pilot_discovery import main as pilot_discovery
from pilot.cli.pilotctl import main as pilotctl
from pilot.settings.document import document

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in README.splitlines() if line.startswith("    ")]


def test_settings_document_is_current() -> None:
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == document(), (
        "python -m pilot.settings > docs/settings.md"
    )


def test_settings_check_exit_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "settings.md"
    for text, status, message in (
        (document(), 0, ""),
        ("", 1, f"{path} is out of date; run: python -m pilot.settings > {path}\n"),
    ):
        path.write_text(text, encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["settings", "--check", str(path)])
        with pytest.raises(SystemExit) as exit_info:
            runpy.run_module("pilot.settings", run_name="__main__")
        assert (exit_info.value.code, capsys.readouterr().err) == (status, message)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: pathlib.Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_linked_names_are_defined_in_their_module(path: pathlib.Path) -> None:
    links = re.findall(r"\[([^\]]*`[^\]]*)\]\(([^)#]+\.py)\)", path.read_text(encoding="utf-8"))
    names = [(name, module) for text, module in links for name in re.findall(r"`([\w.]+)`", text)]
    assert [name for name, module in names if not is_defined(name, path.parent / module)] == []


def test_every_threat_names_a_test() -> None:
    """The tests that the rows link to exist, as the previous tests check."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| who \|.*\| tests \|\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(tables) == 6
    assert len(rows) > 60
    assert [row for row in rows if "](../tests/" not in row.rsplit("|", 2)[1]] == []


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/ARCHITECTURE.md"])
def test_paths_in_the_documents_exist(name: str) -> None:
    folders = "bench|ca|deploy|docs|gotemplate|pilot|samples|testing|tests|webhook"
    paths = re.findall(rf"(?<=[` ])((?:{folders})/[\w./-]*\w)[` ]", (ROOT / name).read_text(encoding="utf-8"))
    assert [path for path in paths if not (ROOT / path).exists()] == []


def is_defined(name: str, module: pathlib.Path) -> bool:
    """Return whether a module defines a name, such as `f` or `Class.method`. A file's own name is always right."""
    code = module.read_text(encoding="utf-8") if module.exists() else ""
    return module.name == name or all(
        re.search(rf"^ *(async def|def|class) {part}\b|^{part}(:| =)", code, re.MULTILINE) for part in name.split(".")
    )


def test_readme_starts_with_sample_and_tests() -> None:
    assert next(command for command in COMMANDS if command.startswith("python3 dev.py")) == "python3 dev.py sample"
    assert "python3 dev.py test" in COMMANDS


COMMAND = re.compile(
    r"^(?:    |\$ )(?:\$ )?(?:python3 dev.py run )?((?:pilotctl|pilot-\w+|python3?|helm|kubectl) .*)$", re.MULTILINE
)
DOCUMENTED_COMMANDS = sorted(
    {
        command.strip()
        for page in DOCUMENTS
        for command in COMMAND.findall(re.sub(r"\\\n +", "", page.read_text(encoding="utf-8")))
    }
)
PROGRAMS = {"pilotctl": pilotctl, "pilot-agent": pilot_agent, "pilot-discovery": pilot_discovery}


@pytest.mark.parametrize("command", [command for command in DOCUMENTED_COMMANDS if command.split()[0] in PROGRAMS])
def test_documented_commands_exist(command: str) -> None:
    """Two spaces start a comment. The first of alternatives separated by bars is used, and [FLAGS] is removed."""
    program, *words = shlex.split(
        re.sub(r"(?<=\w)\|[\w|]+", "", re.split(r"\s{2,}| \| ", command)[0]).replace("[FLAGS]", "")
    )
    assert PROGRAMS[program]([*words, "--help"]) == 0


@pytest.mark.parametrize("command", [command for command in DOCUMENTED_COMMANDS if command.split()[0] not in PROGRAMS])
def test_arguments_of_external_commands_exist(command: str) -> None:
    words = command.split()
    assert all((ROOT / word).exists() for word in words if word.startswith("deploy/"))
    if "-m" in words:
        assert importlib.util.find_spec(words[words.index("-m") + 1]) is not None


def test_documents_contain_commands() -> None:
    assert len(DOCUMENTED_COMMANDS) > 30


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path: pathlib.Path) -> None:
    options = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(tmp_path / "trees")]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "RBAC: access denied" in (tmp_path / "troubleshoot.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted(page.stem for page in (ROOT / "docs").glob("*.md") if page.stem != "index"))
def test_every_page_is_in_the_site_contents(page: str) -> None:
    assert page in (ROOT / "docs" / "index.md").read_text(encoding="utf-8").split()


def test_make_targets_and_dev_tasks_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert (
        set(re.findall(r"`?make ([a-z]+)", README + (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")))
        <= targets
    )
    dev_script = (ROOT / "dev.py").read_text(encoding="utf-8")
    assert all(f"dev.py {task}" in dev_script for task in re.findall(r"python3 dev.py ([a-z]+)", README))


def test_make_targets_are_documented() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)[0].split())
    assert phony == set(re.findall(r"^([a-z]+):.*## ", text, re.MULTILINE))
