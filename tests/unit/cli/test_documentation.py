"""What the documents say is so: generated pages are fresh, links lead somewhere, commands exist."""

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
from pilot.settings.document import document, main

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in README.splitlines() if line.startswith("    ")]


def test_the_settings_are_documented_as_they_are() -> None:
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == document(), (
        "python -m pilot.settings > docs/settings.md"
    )


def test_the_program_of_the_settings_says_by_its_status_whether_a_document_is_fresh(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "settings.md"
    for text, status, told in ((document(), 0, ""), ("", 1, f"{path} is stale: python -m pilot.settings > {path}\n")):
        path.write_text(text, encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["settings", "--check", str(path)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("pilot.settings", run_name="__main__")
        assert (ended.value.code, capsys.readouterr().err) == (status, told)


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


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_that_link_to_a_module_are_defined_in_it(path: pathlib.Path) -> None:
    links = re.findall(r"\[([^\]]*`[^\]]*)\]\(([^)#]+\.py)\)", path.read_text(encoding="utf-8"))
    names = [(name, module) for text, module in links for name in re.findall(r"`([\w.]+)`", text)]
    assert [name for name, module in names if not is_defined(name, path.parent / module)] == []


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


def test_the_readme_starts_with_the_sample_and_the_tests() -> None:
    assert next(command for command in COMMANDS if command.startswith("python3 dev.py")) == "python3 dev.py sample"
    assert "python3 dev.py test" in COMMANDS


COMMAND = re.compile(
    r"^(?:    |\$ )(?:\$ )?(?:python3 dev.py run )?((?:pilotctl|pilot-\w+|python3?|helm|kubectl) .*)$", re.MULTILINE
)
SHOWN = sorted({command.strip() for page in DOCUMENTS for command in COMMAND.findall(page.read_text(encoding="utf-8"))})
PROGRAMS = {"pilotctl": pilotctl, "pilot-agent": pilot_agent, "pilot-discovery": pilot_discovery}


@pytest.mark.parametrize("command", [command for command in SHOWN if command.split()[0] in PROGRAMS])
def test_commands_of_the_documents_exist(command: str) -> None:
    """What stands behind two spaces is said of the command; of words between bars the first is taken, and [FLAGS] stands for none."""
    program, *words = shlex.split(
        re.sub(r"(?<=\w)\|[\w|]+", "", re.split(r"\s{2,}| \| ", command)[0]).replace("[FLAGS]", "")
    )
    assert PROGRAMS[program]([*words, "--help"]) == 0


@pytest.mark.parametrize("command", [command for command in SHOWN if command.split()[0] not in PROGRAMS])
def test_what_commands_of_others_name_is_there(command: str) -> None:
    words = command.split()
    assert all((ROOT / word).exists() for word in words if word.startswith("deploy/"))
    if "-m" in words:
        assert importlib.util.find_spec(words[words.index("-m") + 1]) is not None


def test_the_documents_have_commands() -> None:
    assert len(SHOWN) > 30


@pytest.mark.slow
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
    assert (
        set(re.findall(r"`?make ([a-z]+)", README + (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")))
        <= targets
    )
    helped = (ROOT / "dev.py").read_text(encoding="utf-8")
    assert all(f"dev.py {task}" in helped for task in re.findall(r"python3 dev.py ([a-z]+)", README))


def test_every_target_of_make_explains_itself() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)[0].split())
    assert phony == set(re.findall(r"^([a-z]+):.*## ", text, re.MULTILINE))
