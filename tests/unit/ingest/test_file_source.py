"""Effects of file changes on the mesh. Notification by the kernel is tested in test_file_watch."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest
import yaml

from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SIDECAR
from pilot.config.problem import ObjectRef, Severity
from pilot.ingest.decode import Decoded, DocumentOrigin, decode_document
from pilot.ingest.files.file_decoder import FileDecoder
from pilot.ingest.files.folder import is_configuration, place_of
from testing.control_planes.config_folder import ConfigFolder, service


def test_all_files_at_any_depth_are_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "a.yaml").write_text(service("a") + "---\n" + service("b"))
    (tmp_path / "x" / "c.yml").write_text(service("c"))
    (tmp_path / "x" / "y" / "d.json").write_text(json.dumps(yaml.safe_load(service("d"))))
    for ignored in (".e.yaml", "f.yaml.swp", "g.txt", "h.yaml~", "#i.yaml"):
        (tmp_path / ignored).write_text(service("ignored"))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "j.yaml").write_text(service("ignored"))
    files = ConfigFolder(tmp_path)
    assert sorted(files.services) == ["a", "b", "c", "d"]
    assert len(files.commits) == 1
    assert files.codes == []


def test_paths_that_are_no_files_are_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    (tmp_path / "link.yaml").symlink_to("target")
    os.mkfifo(tmp_path / "pipe.yaml")
    files = ConfigFolder(tmp_path)
    assert files.services == {"a": 80}
    assert [(pathlib.Path(p.file).name, p.code, p.severity, p.message) for p in files.problems] == [
        ("link.yaml", "unreadable-file", Severity.WARNING, "broken symbolic link to target; it is ignored"),
        ("pipe.yaml", "unreadable-file", Severity.WARNING, "not a regular file; it is ignored"),
    ]
    (tmp_path / "target").write_text(service("b"))
    (tmp_path / "pipe.yaml").unlink()
    files.source.retry()
    files.settle()
    assert files.services == {"a": 80, "b": 80}
    assert files.codes == []


def test_missing_folder_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        ConfigFolder(tmp_path / "none")


def test_file_is_added_changed_and_removed(tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    files.write("a.yaml", service("a", 80) + "---\n" + service("b", 80))
    files.notify("a.yaml")
    assert files.services == {"a": 80, "b": 80}
    files.write("a.yaml", service("a", 81) + "---\n" + service("c", 80))
    files.notify("a.yaml")
    assert files.services == {"a": 81, "c": 80}
    (tmp_path / "a.yaml").unlink()
    files.notify("a.yaml")
    assert files.services == {}


def test_renamed_file_changes_nothing(tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    files.write("b.yaml", service("a"))
    files.notify("b.yaml")
    before = files.row("a")
    (tmp_path / "b.yaml").rename(tmp_path / "z.yaml")
    files.notify("b.yaml", "z.yaml")
    assert files.row("a") is before or files.row("a") == before
    assert all(row is not None for _, _, row in files.commits[-1].edits)


def test_file_renamed_into_place_is_read(tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    files.write(".a.tmp", service("a", 82)).replace(tmp_path / "a.yaml")
    files.notify(".a.tmp", "a.yaml")
    assert files.services == {"a": 82}


def test_equivalent_edit_commits_nothing(tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    files.write("a.yaml", service("a"))
    files.notify("a.yaml")
    count = len(files.commits)
    files.write(
        "a.yaml",
        "# a comment\n"
        + service("a").replace("{name: a,", "{name: a, resourceVersion: '5', annotations: {example.com/x: y},"),
    )
    files.notify("a.yaml")
    assert len(files.commits) == count


@pytest.mark.parametrize("half", ["apiVersion: v1\nkind: Service\nmetadata: {name: a, nam", "a: [", "\tx", '{"a": '])
def test_partly_written_file_keeps_its_objects(half: str, tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    path = files.write("a.yaml", service("a") + "---\n" + service("b"))
    files.notify("a.yaml")
    files.write("a.yaml", half)
    files.notify("a.yaml")
    assert files.services == {"a": 80, "b": 80}
    (problem,) = files.problems
    assert (problem.code, problem.severity, problem.file) == ("syntax-error", Severity.ERROR, str(path))
    assert problem.line >= 1
    files.write("a.yaml", service("a", 81))
    files.notify("a.yaml")
    assert files.services == {"a": 81}
    assert files.codes == []


def test_invalid_object_keeps_its_last_valid_version(tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    files.write("a.yaml", service("a", 80) + "---\n" + service("b", 80))
    files.notify("a.yaml")
    files.write("a.yaml", service("a", 0) + "---\n" + service("b", 81))
    files.notify("a.yaml")
    assert files.services == {"a": 80, "b": 81}
    (problem,) = files.problems
    assert problem.object == ObjectRef(GroupKind("", "Service"), "shop", "a")
    assert (problem.code, problem.path, problem.line) == ("bad-port", "spec.ports[0].port", 4)
    files.write("a.yaml", service("a", 0))
    files.notify("a.yaml")
    assert files.services == {"a": 80}, "the last valid version survives further edits"
    (tmp_path / "a.yaml").unlink()
    files.notify("a.yaml")
    assert files.services == {}
    assert files.codes == []


def test_first_file_by_path_owns_a_duplicate_object(tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    files.write("b.yaml", service("a", 2))
    files.notify("b.yaml")
    files.write("c.yaml", service("a", 3))
    files.notify("c.yaml")
    assert files.services == {"a": 2}
    (problem,) = files.problems
    assert (problem.code, problem.file) == ("duplicate-object", str(tmp_path / "c.yaml"))
    files.write("a.yaml", service("a", 1))
    files.notify("a.yaml")
    assert files.services == {"a": 1}
    assert [pathlib.Path(p.file).name for p in files.problems] == ["b.yaml", "c.yaml"]
    (tmp_path / "b.yaml").unlink()
    files.notify("b.yaml")
    assert files.services == {"a": 1}
    (tmp_path / "a.yaml").unlink()
    files.notify("a.yaml")
    assert files.services == {"a": 3}
    assert files.codes == []


def test_edit_of_a_shadowed_duplicate_commits_nothing(tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    files.write("a.yaml", service("a", 1))
    files.write("b.yaml", service("a", 2))
    files.notify("a.yaml", "b.yaml")
    count = len(files.commits)
    files.write("b.yaml", service("a", 3))
    files.notify("b.yaml")
    assert len(files.commits) == count
    files.write("a.yaml", service("other"))
    files.notify("a.yaml")
    assert files.services == {"a": 3, "other": 80}
    assert files.codes == []


def test_duplicate_object_in_one_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.yaml").write_text(service("a", 1) + "---\n" + service("a", 2))
    files = ConfigFolder(tmp_path)
    assert files.services == {"a": 1}
    assert files.codes == ["duplicate-object"]


def test_duplicate_key_is_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  name: b\nspec: {ports: [{port: 80}]}\n"
    )
    files = ConfigFolder(tmp_path)
    assert files.services == {"b": 80}
    (problem,) = files.problems
    assert (problem.code, problem.object.name, problem.line) == ("duplicate-key", "b", 5)


def test_folder_is_added_moved_and_removed(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    files = ConfigFolder(config)
    files.write("x/y/a.yaml", service("a"))
    files.write("x/b.yaml", service("b"))
    files.notify("x")
    assert sorted(files.services) == ["a", "b"]
    (config / "x").rename(config / "z")
    files.notify("x", "z")
    assert sorted(files.services) == ["a", "b"]
    (config / "z" / "y").rename(tmp_path / "elsewhere")
    files.notify("z/y")
    assert sorted(files.services) == ["b"]
    (config / "z").rename(tmp_path / "gone")
    files.notify("z")
    assert files.services == {}


def test_object_moves_between_a_file_and_a_folder_atomically(tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    files.write("x/m.yaml", service("a", 1))
    files.write("y.yaml", service("b", 1))
    files.notify("x", "y.yaml")
    (tmp_path / "x" / "m.yaml").unlink()
    files.write("y.yaml", service("a", 2) + "---\n" + service("b", 1))
    files.notify("x", "y.yaml")
    assert files.services == {"a": 2, "b": 1}
    files.write("w.yaml", service("b", 3))
    files.write("x/m.yaml", service("a", 4))
    (tmp_path / "y.yaml").unlink()
    files.notify("w.yaml", "x", "y.yaml")
    assert files.services == {"a": 4, "b": 3}


def test_kubernetes_volume_update_swaps_all_files(tmp_path: pathlib.Path) -> None:
    for version, port in (("..1", 1), ("..2", 2)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.yaml").write_text(service("a", port))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    files = ConfigFolder(tmp_path)
    assert files.services == {"a": 1}
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    files.notify("..data_tmp", "..data")
    assert files.services == {"a": 2}


def test_many_changes_cause_one_rescan(tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    names = [f"{i}.yaml" for i in range(1200)]
    for i, name in enumerate(names):
        files.write(name, service(f"s{i}"))
    files.source.changed([str(tmp_path / name) for name in names[:1100]])
    files.settle()
    assert len(files.services) == 1200
    assert sum(len(commit.edits) for commit in files.commits) == 1200, "each file is read once"


def test_only_changed_files_are_read_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ConfigFolder(tmp_path)
    for name in "abc":
        files.write(f"{name}.yaml", service(name))
    files.source.rescan()
    reads: list[str] = []
    read_original = FileDecoder.read

    def record(reader: FileDecoder, path: str, *args: Any) -> list[Decoded]:
        reads.append(os.path.basename(path))
        return read_original(reader, path, *args)

    monkeypatch.setattr(FileDecoder, "read", record)
    files.source.rescan()
    assert reads == []
    files.write("b.yaml", service("b", 8080))
    files.source.rescan()
    assert reads == ["b.yaml"]


def test_missing_root_folder_keeps_its_objects(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "a.yaml").write_text(service("a"))
    files = ConfigFolder(config)
    config.rename(tmp_path / "away")
    files.source.rescan()
    files.settle()
    assert files.services == {"a": 80}
    (tmp_path / "away").rename(config)
    (config / "a.yaml").unlink()
    files.source.rescan()
    files.settle()
    assert files.services == {}


def test_unreadable_file_keeps_its_objects(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ConfigFolder(tmp_path)
    files.write("a.yaml", service("a"))
    files.notify("a.yaml")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("os.open", refuse)
        files.source.changed([str(tmp_path / "a.yaml")])
    files.settle()
    assert files.services == {"a": 80}
    assert files.codes == ["unreadable-file"]


def test_unreadable_folder_keeps_its_objects_and_does_not_affect_others(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ConfigFolder(tmp_path)
    files.write("locked/a.yaml", service("a"))
    files.write("open/b.yaml", service("b"))
    files.source.rescan()
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    with monkeypatch.context() as patched:
        patched.setattr("os.scandir", refuse)
        files.write("open/b.yaml", service("b", 81))
        files.source.rescan()
        files.settle()
        assert files.services == {"a": 80, "b": 81}
        assert [(p.code, p.file) for p in files.problems] == [("unreadable-folder", str(tmp_path / "locked"))]
    files.source.rescan()
    assert files.codes == []


def test_links_to_folders_are_not_followed(tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    files.write("real/a.yaml", service("a"))
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    (tmp_path / "loop").symlink_to(tmp_path)
    files.notify("real/a.yaml", "linked", "linked/a.yaml", "loop", "loop/loop/real/a.yaml")
    assert files.services == {"a": 80}
    assert files.codes == []
    (tmp_path / "real").rename(tmp_path / "moved")
    (tmp_path / "real").symlink_to(tmp_path / "nowhere")
    files.notify("real")
    assert files.services == {}


def test_internal_error_affects_only_its_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(plain: Any, *rest: Any) -> Any:
        return decode_document(plain, *rest) if plain["metadata"]["name"] != "bad" else 1 // 0

    monkeypatch.setattr("pilot.ingest.files.file_decoder.decode_document", fail)
    for name in ("bad", "good"):
        (tmp_path / f"{name}.yaml").write_text(service(name))
    files = ConfigFolder(tmp_path)
    assert files.services == {"good": 80}
    assert [(p.code, p.file) for p in files.problems] == [("internal-error", str(tmp_path / "bad.yaml"))]


def test_configuration_of_another_revision_is_ignored(tmp_path: pathlib.Path) -> None:
    for name, revision in (("a", "old"), ("b", "new"), ("c", "")):
        label = f"labels: {{istio.io/rev: {revision}}}, " if revision else ""
        metadata = f"metadata: {{{label}name: {name}, namespace: shop}}\nspec: {{egress: [{{hosts: ['./*']}}]}}\n"
        (tmp_path / f"{name}.yaml").write_text(f"apiVersion: networking.istio.io/v1\nkind: Sidecar\n{metadata}")
        (tmp_path / f"service-{name}.yaml").write_text(service(name).replace("{name", f"{{{label}name"))
    files = ConfigFolder(tmp_path, origin=DocumentOrigin(revision="new"))
    assert sorted(key.name for key, _ in SIDECAR.table(files.mesh).rows()) == ["b", "c"]
    assert sorted(files.services) == ["a", "b", "c"], "registry objects have no revision"


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.json"])
def test_configuration_file_names(name: str) -> None:
    assert is_configuration(name)


@pytest.mark.parametrize("name", ["a.yaml.tmp", ".a.yaml", "yaml", "a.txt", "~a.yaml"])
def test_other_file_names(name: str) -> None:
    assert not is_configuration(name)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/c/a.yaml", "/c/a.yaml"),
        ("/c/x/a.yaml", "/c/x/a.yaml"),
        ("/c/.x/a.yaml", None),
        ("/c/x/.a.swp", None),
        ("/c/x/..data", "/c/x"),
        ("/c/..data", "/c"),
        ("/c", "/c"),
    ],
)
def test_place_of_a_changed_path(path: str, expected: str | None) -> None:
    assert place_of(path, "/c") == expected
