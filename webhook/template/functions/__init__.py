"""The functions of Sprig, which templates of Istio and of charts call. https://masterminds.github.io/sprig/"""
from webhook.template.builtins import BUILTINS
from webhook.template.function import Function
from webhook.template.functions.defaults import DEFAULTS
from webhook.template.functions.dicts import DICTS
from webhook.template.functions.encoding import ENCODING
from webhook.template.functions.lists import LISTS
from webhook.template.functions.numbers import NUMBERS
from webhook.template.functions.paths import PATHS
from webhook.template.functions.text import TEXT
from webhook.template.functions.words import WORDS

SPRIG: dict[str, Function] = {**BUILTINS, **TEXT, **WORDS, **LISTS, **DICTS, **NUMBERS, **DEFAULTS, **ENCODING, **PATHS}

__all__ = ["SPRIG"]
