"""Application of rules by iptables-restore."""

from __future__ import annotations

import pathlib

import pytest

from pilot.agent.capture import iptables_restore as restore
from pilot.agent.capture.capture_rules import Family, RulesError
from pilot.agent.capture.iptables_text import build_restore_input
from tests.unit.agent.capture.test_pod_chains import INJECTED, OLD_RULES, chains


def fake_iptables(folder: pathlib.Path, rules: str, status: int = 0, variant: str = "") -> None:
    """Write iptables programs that have existing rules and record their input."""
    for name in ("iptables", "ip6tables"):
        (folder / f"{name}-saved").write_text(rules)
        programs = {
            "save": f"cat {folder}/{name}-saved",
            "restore": f"echo $* >{folder}/{name}-input; cat >>{folder}/{name}-input; exit {status}",
        }
        for command, script in programs.items():
            path = folder / f"{name}{variant}-{command}"
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)


def test_iptables_restore_receives_all_rules_of_a_family(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_iptables(tmp_path, OLD_RULES)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    restore.apply({Family.V4: chains(INJECTED)})
    assert (tmp_path / "iptables-input").read_text() == "--noflush --wait\n" + build_restore_input(
        chains(INJECTED), OLD_RULES
    )
    assert (tmp_path / "ip6tables-input").read_text() == "--noflush --wait\n" + build_restore_input((), OLD_RULES)


def test_iptables_failure_is_reported(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_iptables(tmp_path, "", status=3)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(RulesError, match="iptables-restore: exit status 3"):
        restore.apply({Family.V4: chains(INJECTED)})


def test_forced_variant_of_iptables_is_used(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Release note 57827."""
    fake_iptables(tmp_path, "", variant="-legacy")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    restore.apply({Family.V4: chains(INJECTED)}, "legacy")
    assert (tmp_path / "iptables-input").exists()
    with pytest.raises(RulesError, match="iptables-nft-save: No such file or directory"):
        restore.apply({Family.V4: chains(INJECTED)}, "nft")
