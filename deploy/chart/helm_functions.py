"""Template functions of Helm beyond those of Sprig. https://helm.sh/docs/chart_template_guide/function_list/"""

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
    """Parse a YAML mapping. For other text, return a mapping with the key Error, as Helm does."""
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
    """Parse a YAML list. For other text, return a list with the error, as Helm does."""
    try:
        value = _read(text)
    except SyntaxFault as fault:
        return [f"error converting YAML to JSON: {fault}"]
    if value is None:
        return []
    return value if isinstance(value, list) else ["json: cannot unmarshal into a value of type []interface {}"]


def to_yaml(value: Any) -> str:
    """Return a value as YAML, without the trailing line break."""
    return go_yaml.dump(value).removesuffix("\n")


def required(message: str, value: Any) -> Any:
    """Return a value. Raises ValueError with the chart's message if it is nil or ""."""
    if value is None or value == "":
        raise ValueError(message)
    return value


def nothing(*_: str) -> dict[str, Any]:
    """Return the result of `lookup` without a cluster, which is empty."""
    return {}


FUNCTIONS: dict[str, Function] = {
    **{name: function for name, function in SPRIG.items() if name not in ("env", "expandenv")},
    "toYaml": takes("any", to_yaml),
    "fromYaml": takes("string", from_yaml),
    "fromYamlArray": takes("string", from_yaml_list),
    "required": takes("string any", required),
    "lookup": takes("string string string string", nothing),
}
