"""JSON patches between two objects. https://www.rfc-editor.org/rfc/rfc6902"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Operation = dict[str, Any]


def differences(old: dict[str, Any], new: dict[str, Any], path: str = "") -> Iterator[Operation]:
    """Yield the operations that transform `old` into `new`. Lists that differ are replaced as a whole."""
    for key, value in old.items():
        place = f"{path}/{_escape(key)}"
        if key not in new:
            yield {"op": "remove", "path": place}
        elif value != new[key] or type(value) is not type(new[key]):
            if isinstance(value, dict) and isinstance(new[key], dict):
                yield from differences(value, new[key], place)
            else:
                yield {"op": "replace", "path": place, "value": new[key]}
    for key, value in new.items():
        if key not in old:
            yield {"op": "add", "path": f"{path}/{_escape(key)}", "value": value}


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def apply(target: Any, operations: list[Operation]) -> Any:
    """Return `target` with the operations of a patch applied. Only the operations that `differences` yields are
    supported."""
    result = {**target}
    for operation in operations:
        *above, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        place = result
        for part in above:
            place[part] = {**place[part]}
            place = place[part]
        if operation["op"] == "remove":
            del place[last]
        else:
            place[last] = operation["value"]
    return result
