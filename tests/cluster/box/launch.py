"""Starts a container's program: `python -I -S launch.py SPECIFICATION`. Uses only the standard library, to start fast.

The specification is JSON with the fields of `Launch` in container.py.
"""

import ctypes
import json
import os
import pathlib
import socket
import sys

NEWNS, NEWUTS, NEWNET = 0x20000, 0x4000000, 0x40000000
BIND, RECURSIVE, READ_ONLY, REMOUNT, PRIVATE = 4096, 16384, 1, 32, 1 << 18
CAPBSET_DROP, NO_NEW_PRIVILEGES, LAST_CAPABILITY = 24, 38, 40
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode() or None, flags, options.encode() or None)
    _check(_libc.mount(*arguments), f"mount {target}")


def _make_root(spec: dict) -> None:
    """Mount the container's file system: this machine's, with the container's own changes in front."""
    folder = pathlib.Path(spec["folder"])
    upper, work, root = folder / "upper", folder / "work", folder / "root"
    for each in (upper, work, root):
        each.mkdir(parents=True, exist_ok=True)
    _mount("overlay", str(root), "overlay", 0, f"lowerdir=/,upperdir={upper},workdir={work}")
    for name in ("proc", "dev", "sys"):
        _mount(f"/{name}", f"{root}/{name}", "", BIND | RECURSIVE)
    for name in spec["programs"]:  # containers' users may not reach them on this machine, such as in /root
        for parent in pathlib.Path(f"{root}{name}").parents:
            if parent.is_relative_to(root) and not parent.stat().st_mode & 0o001:
                parent.chmod(parent.stat().st_mode | 0o005)
    for name in spec["shared"]:  # folders of this machine that are on other file systems
        os.makedirs(f"{root}{name}", exist_ok=True)
        _mount(name, f"{root}{name}", "", BIND | RECURSIVE | READ_ONLY)


def _mount_volumes(spec: dict, sources: list) -> None:
    """Mount volumes. The process is in the new root, so links lead to places inside."""
    for mount, source in zip(spec["mounts"], sources, strict=True):
        target = mount["target"]
        if mount["file"]:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not os.path.exists(target):
                pathlib.Path(target).touch()
        else:
            os.makedirs(target, exist_ok=True)
        _mount(f"/proc/self/fd/{source}", target, "", BIND)
        if mount["read_only"]:
            _mount("", target, "", BIND | REMOUNT | READ_ONLY)
        os.close(source)


def _drop_privileges(spec: dict) -> None:
    for capability in range(LAST_CAPABILITY + 1):
        if capability not in spec["capabilities"]:
            _check(_libc.prctl(CAPBSET_DROP, capability, 0, 0, 0), "capabilities")
    os.setgroups(spec["groups"])
    os.setgid(spec["group"])
    os.setuid(spec["user"])
    if spec["no_new_privileges"]:
        _check(_libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")


def main() -> None:
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    for file in spec["cgroups"]:
        pathlib.Path(file).write_text(str(os.getpid()))
    network = os.open(spec["network"], os.O_RDONLY)
    _check(_libc.unshare(NEWNS | NEWUTS), "unshare")
    socket.sethostname(spec["environment"]["HOSTNAME"])
    _mount("", "/", "", PRIVATE | RECURSIVE)
    _make_root(spec)
    sources = [os.open(mount["source"], os.O_PATH) for mount in spec["mounts"]]
    os.chroot(f"{spec['folder']}/root")
    os.chdir("/")
    for path, target in spec["links"].items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.lexists(path):
            os.symlink(target, path)
    _mount_volumes(spec, sources)
    if spec["read_only"]:
        _mount("", "/", "", BIND | REMOUNT | READ_ONLY)
    _check(_libc.setns(network, NEWNET), "setns")
    os.close(network)
    _drop_privileges(spec)
    os.chdir(spec["directory"])
    try:
        os.execvpe(spec["command"][0], spec["command"], spec["environment"])
    except OSError as error:
        sys.exit(f"{spec['command'][0]}: {error.strerror}")


main()
