"""Hidden states that predict tokens: along a token tree if the model allows it, else in padded rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from truing.distributed.sharding import computing_device
from truing.errors import ModelError
from truing.models.forward.expert_routes import RouteCount, use_routes
from truing.models.forward.recompute import recompute_layers
from truing.models.forward.route_support import why_no_replay
from truing.models.forward.token_keys import Routes, before_last, token_keys
from truing.models.forward.token_tree import Partition, build_tree, partition
from truing.models.forward.tree_attention import Attention, tree_attention, use_attention
from truing.types.sample import Sample
from truing.types.token import NO_ROUTE


class MicroBatch(NamedTuple):
    """Samples to compute together, and the tokens that takes."""

    samples: list[Sample]
    tokens: int
    recompute: bool = False  # whether layers save only their inputs for the backward pass
    is_padding: bool = False  # computed only because other ranks compute; its results are dropped


def hidden_before(
    causal: PreTrainedModel,
    sequences: Sequence[Tensor],
    index_2N: Tensor,
    *,
    recompute: bool = False,
    routes: Routes | None = None,
    count: RouteCount | None = None,
) -> Tensor:
    """Return the hidden states [N, D] before the tokens ``index_2N``: indices of sequences and positions.

    With ``recompute`` the backward pass recomputes each layer from its input. ``routes`` are the experts that
    each token takes, and ``count`` counts where the routers would have selected others.
    """
    sequences = [sequence[:-1] for sequence in sequences]  # the last token predicts nothing
    routes = before_last(routes)
    sample_N, token_N = index_2N
    longest = max(map(len, sequences))
    check_positions(causal, longest)
    if why_no_tree(causal, longest):
        routes_RMK = None if routes is None else _padded_routes(routes, sequences)
        again = partial(_along, causal, routes_RMK, None)
        with (
            recompute_layers(causal, again) if recompute else nullcontext(),
            _along(causal, routes_RMK, count),
        ):
            hidden = _padded(causal, sequences)
        return hidden[sample_N.to(hidden.device), (token_N - 1).to(hidden.device)]
    keyed = token_keys(sequences, routes)
    tree = build_tree(keyed.keys)
    places = torch.nn.utils.rnn.pad_sequence(list(tree.token_indices), batch_first=True)
    attention, routes_RMK = tree_attention(tree, computing_device(causal)), keyed.routes_of(tree.keys_L)
    again = partial(_along, causal, routes_RMK, None, attention)
    with recompute_layers(causal, again) if recompute else nullcontext(), _along(causal, routes_RMK, count):
        hidden = decoder_states(causal, keyed.ids_of(tree.keys_L), tree.position_ids_L, attention)
    return hidden[places[sample_N, token_N - 1].to(hidden.device)]


@contextmanager
def _along(
    causal: PreTrainedModel,
    routes_RMK: Tensor | None,
    count: RouteCount | None,
    attention: Attention | None = None,
) -> Iterator[None]:
    """Within the block the model takes these routes, if any, and this attention."""
    with ExitStack() as stack:
        if routes_RMK is not None:
            stack.enter_context(use_routes(causal, routes_RMK, count))
        if attention is not None:
            stack.enter_context(use_attention(causal, attention))
        yield


def _padded_routes(routes: Routes, sequences: Sequence[Tensor]) -> Tensor:
    """Return the routes of rows padded on the right: [B · T, layers, K]."""
    shape = next(each.shape[1:] for each in routes if each is not None)
    rows = [
        torch.full((len(ids), *shape), NO_ROUTE, dtype=torch.int16) if each is None else each
        for each, ids in zip(routes, sequences, strict=True)
    ]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=NO_ROUTE)
    return padded.flatten(0, 1)


def decoder_states(
    causal: PreTrainedModel, ids_L: Tensor, positions_L: Tensor, attention: Attention
) -> Tensor:
    """Return the hidden states [L, D] of one row of tokens under ``attention``."""
    ids, positions = (each[None].to(computing_device(causal)) for each in (ids_L, positions_L))
    with use_attention(causal, attention):
        out = causal.get_decoder()(input_ids=ids, position_ids=positions, use_cache=False)
    return out.last_hidden_state[0]


def split_micro_batches(
    causal: PreTrainedModel, samples: Sequence[Sample], max_tokens: int
) -> list[MicroBatch]:
    """Split samples into micro-batches of at most ``max_tokens`` computed tokens, or of one sample."""
    if not samples:
        return []
    sequences = [sample.token_ids[:-1] for sample in samples]
    if why_no_tree(causal, max(map(len, sequences))):
        parts = _partition_padded(sequences, max_tokens)
    else:
        routes = before_last(routes_to_replay(causal, samples))
        parts = partition(token_keys(sequences, routes).keys, max_tokens)
    return [MicroBatch([samples[b] for b in part.members], part.tokens) for part in parts]


def routes_to_replay(causal: PreTrainedModel, samples: Sequence[Sample]) -> Routes | None:
    """Return the recorded routes of samples; None if none is recorded, or the model cannot replay them."""
    routes = [sample.routes for sample in samples]
    if all(each is None for each in routes) or why_no_replay(causal):
        return None
    return routes


def check_positions(causal: PreTrainedModel, longest: int) -> None:
    """Raise if the longest sequence would change how the model computes its batch."""
    for limit, what in _limits(causal.config.get_text_config()):
        if longest > limit:
            raise ModelError(
                f"{what} ({causal.config.get_text_config().model_type})",
                got=f"{longest} tokens",
                expected=f"at most {limit}",
                remedy="shorten prompts or sampling.max_new_tokens, or use another model",
            )


def longest_supported(causal: PreTrainedModel) -> float:
    """Return the longest sequence that ``check_positions`` accepts (tokens); infinite without a limit."""
    return min((limit for limit, _ in _limits(causal.config.get_text_config())), default=inf)


def _limits(config: PreTrainedConfig) -> Iterator[tuple[int, str]]:
    """Yield limits in tokens, and what happens beyond each."""
    rope = getattr(config, "rope_parameters", None) or {}
    by_layer_type = [each for each in rope.values() if isinstance(each, dict)]
    for kind in by_layer_type or [rope]:
        if (limit := _switches_at(kind, config)) is not None:
            yield limit, "a long sequence changes the positions of all others in its batch"
    if (limit := _indexes_all_up_to(config)) is not None:
        yield (
            limit,
            "beyond this length an indexer drops tokens from the attention, by scores that may tie",
        )


def _switches_at(rope: Mapping[str, Any], config: PreTrainedConfig) -> int | None:
    """Return the length beyond which rotary positions change for a whole batch; None without one."""
    kind, original = rope.get("rope_type"), rope.get("original_max_position_embeddings")
    if kind == "longrope" and original:
        return original
    return config.max_position_embeddings if kind in ("dynamic", "longrope") else None


def _indexes_all_up_to(config: PreTrainedConfig) -> int | None:
    """Return the length up to which an attention indexer keeps every token; None without an indexer."""
    if (blocks := getattr(config, "index_topk_blocks", None)) is not None:
        return blocks * config.index_block_size
    if (tokens := getattr(config, "indexer_budget", None)) is not None:
        return tokens
    entries = getattr(config, "index_topk", None)
    rates = getattr(config, "compress_rates", None) or {}  # DeepSeek V4 indexes groups of tokens
    return None if entries is None else entries * rates.get("compressed_sparse_attention", 1)


def why_no_tree(causal: PreTrainedModel, longest: int) -> str:
    """Return why this model cannot compute sequences of up to ``longest`` tokens as a tree; "" if it can."""
    config = causal.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if others := kinds - {"full_attention", "sliding_attention"}:
        return f"{config.model_type} has layers of {' and '.join(sorted(others))}"
    if causal._is_stateful:
        return f"{config.model_type} carries a state from token to token"
    if not (causal._supports_attention_backend and causal._supports_sdpa):
        return f"{config.model_type} has a custom attention"
    window = getattr(config, "sliding_window", None)
    slides = "sliding_attention" in kinds or not getattr(config, "layer_types", None)
    if window is not None and slides and longest > window:
        return f"{config.model_type} sees {window} tokens back"
    return ""


def _padded(causal: PreTrainedModel, sequences: Sequence[Tensor]) -> Tensor:
    """Return the hidden states [B, T, D] of rows padded on the right."""
    ids = torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    valid = torch.arange(ids.shape[1]) < lengths[:, None]
    device = computing_device(causal)
    return causal.get_decoder()(
        input_ids=ids.to(device), attention_mask=valid.to(device), use_cache=False
    ).last_hidden_state


def _partition_padded(sequences: Sequence[Tensor], max_tokens: int) -> list[Partition]:
    """Split sequences as ``partition`` does, for rows padded to the longest."""
    parts: list[Partition] = []
    for b in sorted(range(len(sequences)), key=lambda b: len(sequences[b])):
        longest = len(sequences[b])
        if parts and (len(parts[-1].members) + 1) * longest <= max_tokens:
            members = [*parts[-1].members, b]
            parts[-1] = Partition(members, len(members) * longest)
        else:
            parts.append(Partition([b], longest))
    return parts
