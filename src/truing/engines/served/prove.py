"""`truing prove`: which weights a server answers with, compared with folders of weights."""

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from truing.engines.served.endpoint import Endpoint
from truing.engines.served.verdict import Said, Seen, compare, verdict
from truing.models.load import LoadedModel, load
from truing.models.saved_adapter import add_saved_adapter, read_adapter

BATCH = 16
"""Rows that are continued together."""

TEXTS = (
    "The museum opens at nine. Tickets are sold until half past four, and children pay half.",
    "def area(width, height):\n    return width * height\n\nprint(area(3, 4))  # 12\n",
    "Question: 17 + 26 = ?\nAnswer: 43, since 17 + 20 = 37 and 37 + 6 = 43.",
    '{"name": "search", "arguments": {"query": "opening hours", "limit": 3}}',
    "Der Zug fährt um acht Uhr ab. Il treno parte alle otto. Le train part à huit heures.",
    "QVZ 9081 — Ωλ 漢字 ~~ zzyx // 0x3f ::",
)
"""Texts of several kinds: likely and unlikely tokens."""

OWN_TOKENS = 32
"""Of each row that the expected weights continue: there an update moves log-probabilities most."""

CHAT = ({"role": "user", "content": "When does the museum open?"},)


@dataclass(frozen=True)
class ServerProof:
    """What a server was seen to serve."""

    said: Said
    text: str
    seen: Seen
    form: str  # how the server gave log-probabilities
    template: str  # what is known of its chat template
    model: str

    @property
    def wrong(self) -> bool:
        """Whether it is shown that the expected weights are not served, or with another prompt."""
        return self.said in ("other", "scaled", "temperature", "none") or "other ids" in self.template


def prove(
    url: str,
    weights: str,
    *,
    base: str = "",
    before: str = "",
    model: str = "",
    key: str = "",
    rows: Sequence[str] = (),
    tokens: int = 200,
) -> ServerProof:
    """Compare the weights on disk with the log-probabilities of a server; nothing is installed in it.

    Weights are a model by name, a folder, or BASE+ADAPTER; those of an adapter have its base as ``base``.

    Args:
        url: the server: vLLM, `trl vllm-serve`, SGLang, or one with OpenAI's legacy ``echo``.
        weights: what it should serve.
        base: the weights before any training.
        before: the version before, to see stale weights.
        model: the name of the model or adapter at the server; by default its only one.
        key: of the server's API.
        rows: texts to score, better like those of training; by default some of several kinds.
        tokens: that the expected weights continue, to score too; with more, a smaller change shows.

    Raises:
        EngineError: no server answers there, or it gives no log-probabilities of given tokens.
        ModelError: weights cannot be read.
    """
    named = {"the base": base or ("+" in weights and weights.partition("+")[0]), "the version before": before}
    with closing(Endpoint(url, model, key)) as endpoint:
        others = {name: where for name, where in named.items() if where}
        return _prove(endpoint, weights, others, rows or TEXTS, tokens)


def _prove(
    endpoint: Endpoint, expected: str, others: Mapping[str, str], texts: Sequence[str], tokens: int
) -> ServerProof:
    model = endpoint.choose_model()
    loaded, policy = load_candidate(expected)
    ids = rows_of(loaded, policy, texts, tokens)
    scores, form = endpoint.scores([row.tolist() for row in ids])
    server = torch.cat([torch.tensor(each[1:], dtype=torch.float64) for each in scores])
    logits = {"the expected weights": logits_of(policy, ids)}
    template = template_text(endpoint, loaded)
    del policy
    for name, where in others.items():
        logits[name] = logits_of(load_candidate(where)[1], ids)
    seen = compare(server, logits, torch.cat([row[1:] for row in ids]), "the expected weights")
    return ServerProof(*verdict(seen, "the expected weights"), seen, form, template, model)


def load_candidate(where: str) -> tuple[LoadedModel, nn.Module]:
    """Load a folder of weights, or BASE+ADAPTER, in float32 on the CPU."""
    base, _, adapter = where.partition("+")
    loaded = load(base, device="cpu")
    if not adapter:
        return loaded, loaded.model
    return loaded, add_saved_adapter(loaded, read_adapter(adapter), dropout=0.0).eval()


@torch.no_grad()
def rows_of(
    loaded: LoadedModel, policy: nn.Module, texts: Sequence[str], tokens: int, seed: int = 0
) -> list[Tensor]:
    """Return the ids of texts, and further ones that the policy continues by some tokens in all."""
    rows = [torch.tensor(loaded.tokenizer.encode(text)) for text in texts]
    rows = [row[: loaded.context_length - 1] for row in rows if len(row) > 1]
    length = min(max(2, len(row) // 3) for row in rows)
    count = math.ceil(tokens / OWN_TOKENS)
    begins = [rows[number % len(rows)][:length] for number in range(count)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for first in range(0, count, BATCH):
            rows += _continued(loaded, policy, torch.stack(begins[first : first + BATCH]))
    return rows


def _continued(loaded: LoadedModel, policy: Any, begin: Tensor) -> list[Tensor]:
    """Return rows [b, t] with tokens after them that the policy samples from its whole distribution."""
    most = min(OWN_TOKENS, loaded.context_length - 1 - begin.shape[1])
    plain = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
    made = policy.generate(
        input_ids=begin,
        attention_mask=torch.ones_like(begin),
        max_new_tokens=most,
        min_new_tokens=most,  # also after a stop: the tokens are to be scored, not read
        pad_token_id=loaded.pad_id,
        **plain,
    )
    return list(made)


@torch.no_grad()
def logits_of(policy: nn.Module, rows: Sequence[Tensor]) -> Tensor:
    """Return the logits before each token but the first of each row: [n, V] float32."""
    return torch.cat([policy(input_ids=row[None]).logits[0, :-1].float() for row in rows])


def template_text(endpoint: Endpoint, loaded: LoadedModel) -> str:
    """Return whether the server renders messages as the folder's template does."""
    if loaded.tokenizer.chat_template is None:
        return "chat template: the folder has none"
    served = endpoint.prompt_ids(CHAT)
    if served is None:
        return "chat template: not looked at, since the server does not return the ids of a prompt"
    text = loaded.tokenizer.apply_chat_template(list(CHAT), add_generation_prompt=True, tokenize=False)
    own = loaded.tokenizer.encode(str(text), add_special_tokens=False)
    if served == own:
        return f"chat template: the same {len(own)} ids for a message as by the folder's template"
    at = next(
        (i for i, (a, b) in enumerate(zip(served, own, strict=False)) if a != b), min(len(served), len(own))
    )
    there, here = (loaded.tokenizer.decode(ids[at : at + 8]) for ids in (served, own))
    return (
        "chat template: other ids than by the folder's template"
        f" from token {at + 1} on: {there!r}, not {here!r}"
    )
