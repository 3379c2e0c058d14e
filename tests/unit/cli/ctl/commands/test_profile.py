"""Exact output of pilotctl profile."""

from __future__ import annotations

import pytest
import yaml

from tests.unit.cli.ctl.commands.test_manifest import run_command

PROFILES = (
    "ambient",
    "default",
    "demo",
    "empty",
    "minimal",
    "openshift",
    "openshift-ambient",
    "preview",
    "remote",
    "stable",
)


def test_profiles_are_listed_and_compared() -> None:
    assert run_command("profile", "list") == (0, "".join(f"{name}\n" for name in PROFILES), "")
    assert run_command("profile", "diff", "minimal", "minimal") == (0, "The profiles are identical.\n", "")
    assert run_command("profile", "diff", "minimal", "default") == (
        1,
        (
            "--- profile minimal\n+++ profile default\n@@ -10,7 +10,7 @@\n     - enabled: false\n       name: istio-egressgateway\n"
            "     ingressGateways:\n-    - enabled: false\n+    - enabled: true\n       name: istio-ingressgateway\n     pilot:\n       enabled: true\n"
        ),
        "",
    )
    unknown = f"Error: spec.profile: unknown profile tea; available: {', '.join(PROFILES)}\n"
    for words in (("diff", "tea", "default"), ("diff", "default", "tea"), ("dump", "tea")):
        assert run_command("profile", *words) == (1, "", unknown)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("ambient", "-p", "components.cni"), "enabled: true\n"),
        (("minimal", "-p", "components.pilot"), "enabled: true\n"),
        (("-p", "components.base"), "enabled: true\n"),
        (("minimal", "--config-path", "profile"), "minimal\n"),
        (("-p", "profile", "-s", "profile=demo"), "demo\n"),
        (("remote", "-p", "profile"), "remote\n"),
        (("-p", "revision", "-r", "r1"), "r1\n"),
        (("-p", "profile", "-s", "profile=demo", "-s", "profile=minimal"), "minimal\n"),
        (("-p", "revision", "-f", "-"), "stdin\n"),
    ],
)
def test_profile_value_at_a_path(words: tuple[str, ...], printed: str) -> None:
    assert run_command("profile", "dump", *words, stdin="spec: {revision: stdin}\n") == (0, printed, "")


def test_profile_dump_is_an_istiooperator() -> None:
    status, printed, stderr = run_command("profile", "dump", "minimal")
    assert (status, stderr, printed.endswith("\n\n")) == (0, "", False)
    document = yaml.safe_load(printed)
    assert (document["kind"], document["spec"]["profile"]) == ("IstioOperator", "minimal")
    assert "revision" not in document["spec"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("dump", "minimal", "-f", "x"), "specify a profile name or a file, not both"),
        (("dump", "minimal", "-p", "revision", "-r", "default"), "the path revision has no value"),
        (("dump", "minimal", "--config-path", "unknown.field"), "the path unknown.field has no value"),
        (("dump", "minimal", "-p", "installPackagePath"), "the path installPackagePath has no value"),
        (("dump", "-f", "-", "-f", "x"), "-f -: standard input must be the last file"),
        (("dump", "-f", "/no/such"), "cannot read /no/such: No such file or directory"),
        (("dump", "-s", "profile"), '--set profile: expected "path=value"'),
        (
            ("dump", "-d", "/no/such"),
            "folder /no/such/profiles does not exist; charts and profiles are expected in its parent",
        ),
        (
            ("list", "-d", "/no/such"),
            "folder /no/such/profiles does not exist; charts and profiles are expected in its parent",
        ),
    ],
)
def test_profile_errors(words: tuple[str, ...], message: str) -> None:
    assert run_command("profile", *words, stdin="") == (1, "", f"Error: {message}\n")
