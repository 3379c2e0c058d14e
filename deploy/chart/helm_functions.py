"""Template functions that Helm adds to Sprig. https://helm.sh/docs/chart_template_guide/function_list/"""

from __future__ import annotations

from typing import Any

from gotemplate import go_json, go_yaml
from gotemplate.function import Function, takes
from gotemplate.functions import SPRIG
from pilot.ingest.files.documents import SyntaxFault, read_documents


def _read(text: str) -> Any:
    documents = read_documents(text.encode(), "")
    return go_json.floats(documents[0].plain) if documents else None


def from_yaml(text: str) -> dict[str, Any]:
    """Parse a YAML mapping. As in Helm, the result for invalid text is a mapping with the key Error."""
    try:
        value = _read(text)
    except SyntaxFault as fault:
        return {"Error": f"error converting YAML to JSON: {fault}"}
    if value is None:
        return {}
    return (
        value
        if isinstance(value, dict)
        else {"Error": "json: cannot unmarshal into a value of type map[string]interface {}"}
    )


def from_yaml_list(text: str) -> list[Any]:
    """Parse a YAML list. As in Helm, the result for invalid text is a list that contains the error."""
    try:
        value = _read(text)
    except SyntaxFault as fault:
        return [f"error converting YAML to JSON: {fault}"]
    if value is None:
        return []
    return value if isinstance(value, list) else ["json: cannot unmarshal into a value of type []interface {}"]


def to_yaml(value: Any) -> str:
    """Return a value as YAML, without a trailing newline."""
    return go_yaml.dump(value).removesuffix("\n")


def required(message: str, value: Any) -> Any:
    """Return the value. Raises ValueError with the chart's message if the value is nil or ""."""
    if value is None or value == "":
        raise ValueError(message)
    return value


def nothing(*_: str) -> dict[str, Any]:
    """Return an empty mapping. This is the result of `lookup` without a cluster."""
    return {}


FUNCTIONS: dict[str, Function] = {
    **{name: function for name, function in SPRIG.items() if name not in ("env", "expandenv")},
    "toYaml": takes("any", to_yaml),
    "fromYaml": takes("string", from_yaml),
    "fromYamlArray": takes("string", from_yaml_list),
    "required": takes("string any", required),
    "lookup": takes("string string string string", nothing),
}
