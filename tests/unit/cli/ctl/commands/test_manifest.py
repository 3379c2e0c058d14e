"""Exact output of pilotctl manifest."""

from __future__ import annotations

import pathlib

import yaml
from click.testing import CliRunner

from pilot.cli.pilotctl import pilotctl
from tests.unit.cli.ctl.conftest import Run


def run_command(*words: str, stdin: str | None = None) -> tuple[int, str, str]:
    """Return the exit status, standard output and standard error of a command."""
    result = CliRunner().invoke(pilotctl, words, input=stdin)
    return result.exit_code, result.stdout, result.stderr


def test_only_selected_components_are_generated() -> None:
    command = (
        "manifest",
        "generate",
        "-s",
        "profile=empty",
        "-s",
        "components.cni.enabled=true",
        "-s",
        "components.pilot.enabled=true",
    )
    status, printed, stderr = run_command(*command, "--component", "Cni", "-r", "r1")
    assert (status, stderr, printed.endswith("\n\n")) == (0, "", False)
    objects = list(yaml.safe_load_all(printed))
    assert {o["metadata"]["labels"]["operator.istio.io/component"] for o in objects} == {"Cni"}
    assert {o["metadata"]["labels"]["istio.io/rev"] for o in objects} == {"r1"}
    assert run_command(*command, "--component", "Cni", "-r", "r1") == (0, printed, "")


def test_manifest_is_written_to_a_file(tmp_path: pathlib.Path) -> None:
    """Release note manifest-generate-output."""
    command, path = ("manifest", "generate", "-s", "profile=minimal", "--component", "Base"), tmp_path / "all.yaml"
    _, printed, _ = run_command(*command)
    assert run_command(*command, "-o", str(path)) == (0, "", "")
    assert path.read_text("utf-8") == printed
    status, _, stderr = run_command(*command, "--output", str(tmp_path))
    assert (status, stderr) == (1, f"Error: cannot write {tmp_path}: Is a directory\n")


def test_default_image_that_no_registry_has_is_reported() -> None:
    command = ("manifest", "generate", "-s", "profile=minimal", "--component", "Pilot")
    status, printed, stderr = run_command(*command)
    deployment = next(o for o in yaml.safe_load_all(printed) if o["kind"] == "Deployment")
    name = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert status == 0
    assert stderr.startswith(f"! spec.values.pilot.image: the default image, {name}, is in no registry; ")
    assert run_command(*command, "-s", "values.pilot.image=example.com/mesh:1")[2] == ""


def test_force_turns_setting_errors_into_warnings() -> None:
    words = ("manifest", "generate", "-s", "profile=empty", "-s", "values.foo=1")
    assert run_command(*words) == (1, "", "Error: spec.values.foo: unknown field foo\n")
    assert run_command(*words, "--force") == (0, "\n", "! spec.values.foo: unknown field foo\n")


def test_manifest_diff(tmp_path: pathlib.Path) -> None:
    first, broken = tmp_path / "one.yaml", tmp_path / "broken.yaml"
    first.write_text(
        "kind: Pod\nmetadata: {name: p, namespace: n}\nspec: {a: 1}\n---\n- no object\n---\nname: of no kind\n"
    )
    broken.write_text("kind: Pod\n---\na: [1\n")
    assert run_command("manifest", "diff", str(first), str(first)) == (0, "The files contain the same objects.\n", "")
    assert run_command("manifest", "diff", "-", str(first), stdin="kind: Job\n") == (
        1,
        f"only in standard input: Job \nonly in {first}: Pod n/p\n",
        "",
    )
    assert run_command(
        "manifest", "diff", str(first), "-", stdin="kind: Pod\nmetadata: {name: p, namespace: n}\nspec: {a: 2, b: 1}\n"
    ) == (
        1,
        (
            f'--- {first}: Pod n/p\n+++ standard input: Pod n/p\n@@ -3,4 +3,5 @@\n   name: p\n   namespace: "n"\n spec:\n-  a: 1\n+  a: 2\n+  b: 1\n'
        ),
        "",
    )
    status, printed, stderr = run_command("manifest", "diff", str(first), str(broken))
    assert (status, printed, stderr.startswith(f"Error: {broken}:4: ")) == (1, "", True), stderr


def test_manifest_diff_compares_objects(run: Run, tmp_path: pathlib.Path) -> None:
    first, second = tmp_path / "one.yaml", tmp_path / "other.yaml"
    common = "---\nkind: Namespace\nmetadata: {name: c}\n"
    first.write_text(
        f"kind: Service\nmetadata: {{name: a, namespace: n}}\nspec: {{x: 1, y: 2}}\n---\nkind: Pod\nmetadata: {{name: p}}\n{common}"
    )
    second.write_text(
        f"kind: Service\nmetadata: {{name: a, namespace: n}}\nspec: {{y: 2, x: 3}}\n---\nkind: Job\n{common}"
    )
    lines = run("manifest", "diff", str(first), str(second), status=1).splitlines()
    assert lines[:4] == [
        f"only in {first}: Pod p",
        f"only in {second}: Job ",
        f"--- {first}: Service n/a",
        f"+++ {second}: Service n/a",
    ]
    assert [line for line in lines[5:] if line[0] in "+-"] == ["-  x: 1", "+  x: 3"]
    assert "Namespace" not in "\n".join(lines)
