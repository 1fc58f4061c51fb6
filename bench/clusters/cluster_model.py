"""Seconds of a GRPO step with ranks, from rates: pure formulas of what Truing does today.

Letters: N weights, T trained weights, R ranks. Each rank keeps weights in float32, computes in bfloat16 on
CUDA, shards weights, gradients and moments with FSDP2, holds all weights in main memory to publish them, and
computes metrics and the doctor's facts over the rows of all ranks; the first one also writes the record.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

FLOAT32, BFLOAT16 = 4, 2
"""Bytes of a number."""

DIGESTED = 8_000_000
"""Weights that the doctor digests in an update (``instrumentation/update_facts.py``)."""

SUM_CHUNK = 1 << 18
"""Elements that a digest sums at a time (``models/digest.py``)."""

PROOF_TOKENS = {"adapter": 40 + 8 + 9 + 10 + 3 * 4, "all": 40 + 136 + 9 + 10 + 3 * 4}
"""Tokens of the row and of the turns that prove a publication (``engines/vllm/proof/canary.py``)."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a dense decoder with gated feed-forward layers, as in its ``config.json``."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool = False

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the matrices of a layer: query, key, value, output, gate, up, down."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = (self.hidden, queries), (self.hidden, keys), (self.hidden, keys), (queries, self.hidden)
        wide = self.hidden, self.intermediate
        return (*attention, wide, wide, wide[::-1])

    @property
    def body(self) -> int:
        """Weights of the layers' matrices."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.products)

    @property
    def head(self) -> int:
        """Weights of the output head."""
        return self.hidden * self.vocabulary

    @property
    def weights(self) -> int:
        """All weights but norms."""
        return self.body + self.head * (1 if self.tied else 2)

    def adapter(self, rank: int) -> int:
        """Weights of a LoRA adapter on all matrices of the layers."""
        return self.layers * rank * sum(inputs + outputs for inputs, outputs in self.products)

    def tensors(self, trained: int) -> int:
        """Return the trained tensors of all layers: two per matrix of an adapter, or matrices and norms."""
        of_layer = len(self.products)
        return self.layers * (2 * of_layer if trained < self.weights else of_layer + 2)

    def kv_bytes(self, number: int = BFLOAT16) -> int:
        """Bytes of the keys and values of a token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * number


@dataclass(frozen=True)
class Rates:
    """Rates of one GPU and of its node, and the share of each limit that is achieved."""

    flops: float  # operations/s of dense products
    memory_rate: float  # bytes/s of the GPU's memory
    memory: float  # bytes of the GPU
    link: float  # bytes/s into a rank, of all-gather and reduce-scatter
    gloo: float  # bytes/s into a rank, of objects that ranks exchange
    disk: float  # bytes/s of the node's folder for published weights
    node: int = 8  # ranks that share this folder
    train_share: float = 1.0  # of ``flops``, forward and backward
    prefill_share: float = 1.0  # of ``flops``
    decode_share: float = 1.0  # of both limits of a sampled token
    update_share: float = 1.0  # of ``memory_rate``, AdamW
    link_share: float = 1.0
    overlap: bool = True  # whether ranks exchange weights beside products, as on CUDA
    number: int = BFLOAT16  # bytes of a number that computes: weights (``model.dtype``), keys and values
    chunk: float = 50e-6  # seconds of one chunk of a digest: its kernels and a read of the result
    publication: float = 0.0  # CPU seconds per trained weight: copy, two digests, file, expected responses
    proof: float = 0.0  # seconds of a server's answers to a publication's proof
    host: float = math.inf  # operations/s of a rank's share of the CPUs, which score a publication's rows
    # seconds per trained tensor that several ranks exchange one by one, beside its bytes
    tensor_published: float = 0.0
    tensor_updated: float = 0.0  # its norm, and the entries that are compared with the backward passes
    tensor_digested: float = 0.0  # the doctor's digests of weights and moments


class Cost(NamedTuple):
    """Seconds or bytes of a step, of each of its rows, and of each of their tokens."""

    step: float
    row: float
    token: float

    def of(self, rows: float, tokens: float) -> float:
        """Return the amount of a step with ``rows`` rows, which have ``tokens`` tokens together."""
        return self.step + self.row * rows + self.token * tokens


@dataclass(frozen=True)
class Controller:
    """What a rank's Python does for the rows of all ranks: seconds by phase, and bytes."""

    seconds: Mapping[str, Cost]  # record, doctor, other
    exchanged: Cost  # bytes in the exchanges of rollouts and of traces
    unpacking: Cost  # seconds
    recorded: Cost  # bytes on disk


@dataclass(frozen=True)
class Work:
    """Rows of a step, over all ranks."""

    rows: int
    prompts: int  # distinct prompts; a group shares its prompt in engine and trainer
    prompt: int  # tokens of one
    sampled: int  # tokens of all answers
    micro: int = 4096  # tokens of a micro-batch, ``optimizer.micro_batch_tokens``

    @property
    def computed(self) -> int:
        """Distinct tokens that the trainer computes."""
        return self.prompts * self.prompt + self.sampled

    @property
    def recorded(self) -> int:
        """Tokens of all rows, each with its prompt."""
        return self.rows * self.prompt + self.sampled

    @property
    def keys(self) -> float:
        """Mean keys of a computed token: half of its row, of the answers' mean length."""
        return (self.prompt + self.sampled / self.rows) / 2


def forward_flops(shape: Shape, computed: float, scored: float, keys: float) -> float:
    """Return the operations of a forward: 2 per weight and token, 4 per number of queries and key.

    https://arxiv.org/abs/2001.08361, section 2.1; the head computes scored tokens only.
    """
    attention = 4 * shape.layers * shape.heads * shape.head_dim * keys * computed
    return 2 * (shape.body * computed + shape.head * scored) + attention


def training_flops(shape: Shape, work: Work, *, lora: bool, recompute: float = 0.0) -> float:
    """Return the operations of forward and backward: 6 N per token, 4 N with a frozen base.

    The backward pass computes the forward again of the share ``recompute`` of the tokens.
    """
    products = forward_flops(shape, work.computed, work.sampled, 0)
    attention = forward_flops(shape, work.computed, work.sampled, work.keys) - products
    return (2 if lora else 3) * products + 3 * attention + recompute * (products + attention)


def sharded_bytes(weights: float, trained: float, ranks: int, number: int) -> float:
    """Return the bytes into a rank in one micro-batch: two gathers of all weights, a sum of gradients.

    A ring receives (R − 1)/R of the whole (https://docs.nvidia.com/deeplearning/nccl); FSDP2 gathers for the
    forward and again for the backward pass, and sums in float32 (``distributed/sharding.py``).
    """
    return (number * 2 * weights + FLOAT32 * trained) * (ranks - 1) / ranks


def training_seconds(
    shape: Shape, work: Work, rates: Rates, ranks: int, trained: int, *, recompute: float = 0.0
) -> float:
    """Return the seconds of forward and backward; beside each other, exchange or products count."""
    flops = training_flops(shape, work, lora=trained < shape.weights, recompute=recompute) / ranks
    passes = math.ceil(work.computed / ranks / work.micro)
    exchange = (
        passes * sharded_bytes(shape.weights, trained, ranks, rates.number) / (rates.link * rates.link_share)
    )
    both = flops / (rates.flops * rates.train_share), exchange
    return max(both) if rates.overlap else sum(both)


def scoring_seconds(shape: Shape, work: Work, rates: Rates, ranks: int) -> float:
    """Return the seconds of old log-probabilities: a forward over all rows, which gathers all weights."""
    flops = forward_flops(shape, work.computed, work.sampled, work.keys) / ranks
    passes = math.ceil(work.computed / ranks / work.micro)
    exchange = (
        passes * sharded_bytes(shape.weights / 2, 0, ranks, rates.number) / (rates.link * rates.link_share)
    )
    both = flops / (rates.flops * rates.train_share), exchange
    return max(both) if rates.overlap else sum(both)


def update_seconds(shape: Shape, trained: int, rates: Rates, ranks: int) -> float:
    """Return the seconds of clipping and AdamW, which reads four numbers of a weight and writes three."""
    exchanges = rates.tensor_updated * shape.tensors(trained) if ranks > 1 else 0.0
    return 7 * FLOAT32 * trained / ranks / (rates.memory_rate * rates.update_share) + exchanges


def digest_seconds(shape: Shape, trained: int, rates: Rates, ranks: int) -> float:
    """Return the seconds in which several ranks gather the tensors that the doctor digests in an update."""
    share = min(1.0, DIGESTED / trained)
    return share * rates.tensor_digested * shape.tensors(trained) if ranks > 1 else 0.0


def publication_seconds(shape: Shape, trained: int, rates: Rates, ranks: int) -> float:
    """Return the seconds of a publication, which every rank writes, reads back and lets its server load.

    Trained weights are gathered twice, into the whole copy and for the digest, which sums chunk by chunk. The
    whole copy scores the rows and turns of the proof in main memory.
    """
    scored = PROOF_TOKENS["all" if trained == shape.weights else "adapter"]
    size = (rates.number if trained == shape.weights else FLOAT32) * trained
    gathers = 2 * size * (ranks - 1) / ranks / (rates.link * rates.link_share)
    digest = trained / SUM_CHUNK * rates.chunk
    files = min(ranks, rates.node) * size / rates.disk
    exchanges = rates.tensor_published * shape.tensors(trained) if ranks > 1 else 0.0
    scoring = 2 * shape.weights * scored / rates.host
    return gathers + exchanges + digest + files + rates.publication * trained + rates.proof + scoring


def exchange_seconds(work: Work, controller: Controller, rates: Rates, ranks: int) -> float:
    """Return the seconds in which each rank receives and unpacks the rows of all ranks."""
    if ranks == 1:
        return 0.0
    sent = controller.exchanged.of(work.rows, work.recorded) / rates.gloo
    return sent + controller.unpacking.of(work.rows, work.recorded)


def controller_seconds(work: Work, controller: Controller) -> dict[str, float]:
    """Return the seconds of what each rank computes over the rows of all."""
    return {name: each.of(work.rows, work.recorded) for name, each in controller.seconds.items()}


def token_seconds(shape: Shape, rates: Rates, running: float, cached: float) -> float:
    """Return the seconds in which an engine samples one token for each of ``running`` answers.

    It reads all weights of its products and the ``cached`` keys and values, or is bound by operations
    (https://jax-ml.github.io/scaling-book/inference).
    """
    weights = shape.body + shape.head
    read = rates.number * weights + shape.kv_bytes(rates.number) * cached
    flops = 2 * weights * running + 4 * shape.layers * shape.heads * shape.head_dim * cached
    return max(read / rates.memory_rate, flops / rates.flops) / rates.decode_share


def prefill_seconds(shape: Shape, rates: Rates, prompts: float, tokens: int) -> float:
    """Return the seconds in which an engine reads ``prompts`` prompts of ``tokens`` tokens."""
    flops = forward_flops(shape, prompts * tokens, prompts, tokens / 2)
    return flops / (rates.flops * rates.prefill_share)
