"""The volumes of a pod, as folders that are kept up to date."""

from __future__ import annotations

import os
import pathlib
import shutil
import time
from typing import Any

from tests.cluster.box.objects import Api
from tests.cluster.box.values import MissingReference, References, field, resource

Plain = dict[str, Any]
REFRESH_SECONDS = 2.0
ROTATE_AT = 0.8
"""Share of a token's lifetime after which it is replaced, as kubelets do."""


class Volumes:
    """The volumes of one pod, in a folder."""

    def __init__(self, api: Api, pod: Plain, folder: pathlib.Path, address: str) -> None:
        self.pod, self._folder, self._address = pod, folder, address
        self._references = References(api, pod["metadata"]["namespace"])
        self._tokens: dict[tuple[str, int], tuple[float, bytes]] = {}
        self._written: dict[str, dict[str, tuple[bytes, int]]] = {}

    @property
    def references(self) -> References:
        return self._references

    def path(self, name: str) -> pathlib.Path:
        """Return the folder of a volume. A hostPath is the folder of this machine."""
        volume = next(v for v in self.pod["spec"].get("volumes") or () if v["name"] == name)
        return pathlib.Path(volume["hostPath"]["path"]) if "hostPath" in volume else self._folder / name

    async def write(self) -> None:
        """Create or update all volumes. Raise MissingReference if an object that is not optional does not exist."""
        for volume in self.pod["spec"].get("volumes") or ():
            name = volume["name"]
            if "emptyDir" in volume:
                if name not in self._written:
                    folder = self._folder / name
                    folder.mkdir(parents=True, exist_ok=True)
                    folder.chmod(0o777)
                    self._own(folder)
                    self._written[name] = {}
            elif "hostPath" not in volume:
                files = await self._files(volume)
                if files != self._written.get(name):
                    self._replace(self._folder / name, files)
                    self._written[name] = files

    async def _files(self, volume: Plain) -> dict[str, tuple[bytes, int]]:
        """Return the content and the mode of the files of a volume."""
        for kind in ("configMap", "secret", "downwardAPI", "projected"):
            if source := volume.get(kind):
                mode = source.get("defaultMode", 0o644)
                if kind != "projected":
                    return await self._source(kind, source, mode, volume["name"])
                files: dict[str, tuple[bytes, int]] = {}
                for i, part in enumerate(source.get("sources") or ()):
                    ((each, content),) = part.items()
                    files |= await self._source(each, content, mode, f"{volume['name']}/{i}")
                return files
        raise MissingReference(f"the volume {volume['name']} has no source")

    async def _source(self, kind: str, source: Plain, mode: int, key: str) -> dict[str, tuple[bytes, int]]:
        if kind == "serviceAccountToken":
            return {source["path"]: (await self._token(source, key), mode)}
        if kind == "downwardAPI":
            return {item["path"]: (self._downward(item), item.get("mode", mode)) for item in source.get("items") or ()}
        if kind not in ("configMap", "secret"):
            raise MissingReference(f"the box does not implement volumes of {kind}")
        optional = source.get("optional", False)
        if kind == "configMap":
            content = await self._references.config_map(source["name"], optional)
        else:
            content = await self._references.secret(source.get("secretName") or source["name"], optional)
        content = content or {}
        if items := source.get("items"):
            if absent := [item["key"] for item in items if item["key"] not in content and not optional]:
                raise MissingReference(f"{kind} {source.get('name')!r} has no key {absent[0]!r}")
            return {i["path"]: (content[i["key"]], i.get("mode", mode)) for i in items if i["key"] in content}
        return {name: (data, mode) for name, data in content.items()}

    def _downward(self, item: Plain) -> bytes:
        if "fieldRef" in item:
            return field(self.pod, item["fieldRef"]["fieldPath"], self._address).encode()
        return resource(self.pod, {}, item["resourceFieldRef"]).encode()

    async def _token(self, source: Plain, key: str) -> bytes:
        seconds = source.get("expirationSeconds", 3600)
        until, token = self._tokens.get((key, seconds), (0.0, b""))
        if time.monotonic() >= until:
            account = self.pod["spec"].get("serviceAccountName", "default")
            token = await self._references.token(account, self.pod, source.get("audience", ""), seconds)
            self._tokens[key, seconds] = time.monotonic() + seconds * ROTATE_AT, token
        return token

    def _replace(self, folder: pathlib.Path, files: dict[str, tuple[bytes, int]]) -> None:
        """Write files at once: a link to a new folder replaces the link to the old one, as kubelets do."""
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        version = folder / f"..{time.time_ns()}"
        for name, (content, mode) in files.items():
            file = version / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(mode | (0o040 if self._group else 0))
            self._own(file)
        version.mkdir(exist_ok=True)
        version.chmod(0o755)
        old = folder / "..data"
        previous = old.resolve() if old.exists() else None
        (folder / "..data_new").symlink_to(version.name)
        os.replace(folder / "..data_new", old)
        for top in {name.partition("/")[0] for name in files}:
            if not (folder / top).is_symlink():
                (folder / top).symlink_to(f"..data/{top}")
        for link in folder.iterdir():
            if link.is_symlink() and not link.exists():
                link.unlink()
        if previous is not None:
            shutil.rmtree(previous)

    @property
    def _group(self) -> int:
        return int((self.pod["spec"].get("securityContext") or {}).get("fsGroup", 0))

    def _own(self, path: pathlib.Path) -> None:
        if self._group:
            os.chown(path, -1, self._group)
