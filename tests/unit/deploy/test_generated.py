"""Generated deployment files."""

from __future__ import annotations

import pathlib

import yaml

import deploy
from deploy.generated import stale_files


def test_generated_files_are_current() -> None:
    assert stale_files() == []


def test_manifests_list_service_accounts_before_the_deployments_that_use_them() -> None:
    for file in (pathlib.Path(deploy.__file__).parent / "manifests").iterdir():
        kinds = [plain["kind"] for plain in yaml.safe_load_all(file.read_text("utf-8")) if plain]
        if "Deployment" in kinds:
            assert kinds.index("ServiceAccount") < kinds.index("Deployment"), file.name
