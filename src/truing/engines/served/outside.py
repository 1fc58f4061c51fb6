"""The proof from outside: which weights a server answers with, seen by its log-probabilities alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from truing.engines.served.candidates import load_candidate
from truing.engines.served.verdict import Said, Seen, compare, verdict
from truing.models.load import LoadedModel

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
"""Of each row that the expected weights continue: there a step moves log-probabilities most."""

CHAT = ({"role": "user", "content": "When does the museum open?"},)


class Scored(Protocol):
    """An engine that scores given tokens."""

    def scores(self, rows: Sequence[Sequence[int]]) -> tuple[list[list[float]], str]:
        """Return the log-probability of each token after those before it, and how the engine gave them."""
        ...

    def prompt_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int] | None:
        """Return the ids that the engine makes of messages; None if it does not say."""
        ...


@dataclass(frozen=True)
class OutsideProof:
    """What a server was seen to serve."""

    said: Said
    text: str
    model: str
    seen: Seen
    form: str  # how the server gave log-probabilities
    template: str  # what is known of its chat template
    not_entered: str  # why its layers were not compared
    depth: Literal["outside"] = field(default="outside", init=False)

    @property
    def wrong(self) -> bool:
        """Whether it is shown that the expected weights are not served, or with another prompt."""
        return self.said in ("other", "scaled", "temperature", "none") or "other ids" in self.template

    @property
    def lines(self) -> list[str]:
        """What the verdict stands on."""
        tokens = self.seen.tokens
        medians = [
            f"{name}: a median difference of {median:.2g} nats over {tokens} tokens"
            for name, median in self.seen.median.items()
        ]
        shares = [
            f"from {name} (0) to the expected weights (1) the server is at {share.of_change:.3f}"
            f" ± {share.error:.3f}; they differ by {share.change:.2g} nats, and {share.shown:.2g} would show"
            for name, share in self.seen.shares.items()
        ]
        return [*medians, *shares, self.template]

    @property
    def unseen(self) -> list[str]:
        """What was not looked at."""
        others = "" if self.seen.shares else "whether it serves other weights; give --base and --before"
        layers = f"single layers, and faults in those that these tokens hardly use ({self.not_entered})"
        return [each for each in (others, layers) if each]


def prove_outside(
    engine: Scored,
    model: str,
    weights: str,
    others: Mapping[str, str],
    texts: Sequence[str],
    tokens: int,
    not_entered: str,
) -> OutsideProof:
    """Compare the log-probabilities of an engine with those of weights on disk."""
    loaded, policy = load_candidate(weights)
    ids = rows_of(loaded, policy, texts, tokens)
    scores, form = engine.scores([row.tolist() for row in ids])
    server = torch.cat([torch.tensor(each[1:], dtype=torch.float64) for each in scores])
    logits = {"the expected weights": logits_of(policy, ids)}
    template = template_text(engine, loaded)
    del policy
    for name, where in others.items():
        logits[name] = logits_of(load_candidate(where)[1], ids)
    seen = compare(server, logits, torch.cat([row[1:] for row in ids]), "the expected weights")
    said, text = verdict(seen, "the expected weights")
    return OutsideProof(said, text, model, seen, form, template, not_entered)


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


def template_text(engine: Scored, loaded: LoadedModel) -> str:
    """Return whether the server renders messages as the folder's template does."""
    if loaded.tokenizer.chat_template is None:
        return "chat template: the folder has none"
    served = engine.prompt_ids(CHAT)
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
