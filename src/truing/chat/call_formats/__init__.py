"""One file per family: how it writes calls."""

from truing.chat.call_formats.deepseek import DEEPSEEK
from truing.chat.call_formats.gptoss import GPTOSS
from truing.chat.call_formats.hermes import HERMES
from truing.chat.call_formats.llama3 import LLAMA3
from truing.chat.call_formats.mistral import MISTRAL
from truing.chat.call_formats.scan import CallFormat

FORMATS: dict[str, CallFormat] = {
    "hermes": HERMES,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "deepseek": DEEPSEEK,
    "gptoss": GPTOSS,
}

__all__ = ["FORMATS", "CallFormat"]
