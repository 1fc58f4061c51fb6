"""The call formats: one file per model family."""

from truing.chat.call_formats.deepseek import DEEPSEEK
from truing.chat.call_formats.gemma4 import GEMMA4
from truing.chat.call_formats.glm import GLM45, GLM47
from truing.chat.call_formats.gptoss import GPTOSS
from truing.chat.call_formats.hermes import HERMES
from truing.chat.call_formats.lfm2 import LFM2
from truing.chat.call_formats.llama3 import LLAMA3
from truing.chat.call_formats.minimax import MINIMAX
from truing.chat.call_formats.mistral import MISTRAL
from truing.chat.call_formats.qwen3_coder import QWEN3_CODER
from truing.chat.call_formats.seed_oss import SEED_OSS
from truing.chat.call_formats.shared.scanner import CallFormat

FORMATS: dict[str, CallFormat] = {
    "hermes": HERMES,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "deepseek": DEEPSEEK,
    "gptoss": GPTOSS,
    "qwen3_coder": QWEN3_CODER,
    "glm45": GLM45,
    "glm47": GLM47,
    "lfm2": LFM2,
    "gemma4": GEMMA4,
    "minimax": MINIMAX,
    "seed_oss": SEED_OSS,
}

__all__ = ["FORMATS", "CallFormat"]
