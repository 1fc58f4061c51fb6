"""docs/models.md: which causal language models of transformers Truing trains, tested with tiny ones.

    python -m dev.measure.models > docs/models.md             every type: about seven minutes
    python -m dev.measure.models llama gemma2 --json          some, as lines of JSON

For each type, a tiny random model (`tests/architectures.py`) is written to a folder and opened as in a run:
load, forward check, sampler check. Then log-probabilities and gradients of a batch are compared with those of
the model's own forward, row by row. Each type has its own process and a time limit.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import torch
import transformers
from architectures import BORDER, tiny_config, tiny_model
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from truing.engines.local.engine import LocalEngine
from truing.engines.prove_sampler import prove_sampler
from truing.errors import TruingError
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import why_no_tree
from truing.models.forward.score import score
from truing.models.forward_proof import proof_samples, prove_forward
from truing.models.load import load
from truing.models.progress_bars import no_progress_bars
from truing.models.tiny import byte_tokenizer

LIMIT = 120
"""Time limit of one type, in seconds."""

ROUNDING = 1e-3
"""Largest difference of a *yes* from the model's own forward: in nats, and as a share of the gradient."""

SHORT, LONG = BORDER // 2, 10 * BORDER
"""Tokens within every window of the tiny models, and beyond."""

HEAD = """\
# Which models does Truing train?

`python -m dev.measure.models` writes this page (transformers {version}). For every type of causal language
model it makes a tiny random model and opens it as a run does. *yes* means that trainer and sampler compute
what the model's own forward computes, with its caps and scales of logits
(`models/forward/output_head.py`). A run tests this again with your model before its first
step, and ends if it does not hold.

- **tree**: Truing computes a common prefix of samples once. **tree up to the window**: beyond the sliding
  window it computes padded rows.
- **rows**: Truing computes samples in padded rows, as transformers does, for the reason given.
- **Δ**: the largest difference from the model's own forward over a batch: of log-probabilities in nats, and
  of the gradient relative to its norm, also with layers that are computed twice.

Truing refuses sequences longer than an indexer's number of tokens (`index_topk` in config.json): beyond it, a
tie can decide which tokens the attention leaves out. If a layer's experts are one three-dimensional tensor,
no adapter can train them: name the attention layers in `lora.targets`, or train all weights.

{counts}

| type | | how | Δ log-probability | Δ gradient |
|---|---|---|---|---|
"""


def main() -> None:
    """Test the given types, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("types", nargs="*", help="model types; by default every one")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each")
    given = parser.parse_args()
    found = []
    for model_type in given.types or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        found.append({"type": model_type} | in_a_process(model_type))
        print(json.dumps(found[-1]), file=sys.stdout if given.json else sys.stderr, flush=True)
    if not given.json:
        print(page(found), end="")


def in_a_process(model_type: str) -> dict[str, Any]:
    """Return the result for a type, from its own process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(examine(model_type)))
    process.start()
    theirs.close()
    try:
        if ours.poll(LIMIT):
            return ours.recv()
        return {"verdict": "untried", "why": f"no answer within {LIMIT} seconds"}
    except EOFError:
        return {"verdict": "FAULT", "why": "its process ended without an answer"}
    finally:
        process.kill()
        process.join()


def examine(model_type: str) -> dict[str, Any]:
    """Build a model of the type, open it as a run does, and compare.

    ``verdict``: yes, no, or untried, if no tiny model of the type can be built.
    """
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    try:
        model = tiny_model(tiny_config(model_type))
    except Exception as error:  # noqa: BLE001 — third-party configs; the page names the error
        return {"verdict": "untried", "why": f"no tiny one can be made: {_line(error)}"}
    with tempfile.TemporaryDirectory() as folder:
        try:
            return _opened(model, Path(folder))
        except TruingError as error:
            return {"verdict": "no", "why": error.what, "got": str(error.got).replace(folder, "FOLDER")}
        except Exception as error:  # noqa: BLE001 — a fault of Truing, which the page shows
            return {"verdict": "FAULT", "why": _line(error)}


def _opened(model: PreTrainedModel, folder: Path) -> dict[str, Any]:
    """Open a model as a run does, and compare; raise if that is impossible."""
    try:
        with no_progress_bars():
            model.save_pretrained(folder)
    except Exception as error:  # noqa: BLE001 — as above
        return {"verdict": "untried", "why": f"transformers does not save it: {_line(error)}"}
    byte_tokenizer().save_pretrained(folder)
    loaded = load(str(folder), device="cpu")
    prove_forward(loaded.model)
    prove_sampler(loaded.model, LocalEngine(loaded.model, context_length=loaded.context_length))
    short, long = why_no_tree(loaded.model, SHORT), why_no_tree(loaded.model, LONG)
    how = f"rows: {short}" if short else "tree up to the window" if long else "tree"
    differences = compared(loaded.model)
    if not all(each <= ROUNDING for each in differences.values()):  # NaN is no agreement
        return {"verdict": "FAULT", "why": f"proven, and differs: {differences}"}
    return {"verdict": "yes", "how": how} | differences


def compared(causal: PreTrainedModel) -> dict[str, Any]:
    """Return the largest differences of log-probabilities and gradients from the model's own forward."""
    samples = proof_samples(causal)
    batch, weight = collate(samples), torch.linspace(-1, 1, 64)
    own = [
        causal(input_ids=s.token_ids[None]).logits[0, s.prompt_length - 1 : -1].float().log_softmax(-1)
        for s in samples
    ]
    expected = torch.cat(
        [
            logp.gather(1, s.token_ids[s.prompt_length :, None])[:, 0]
            for logp, s in zip(own, samples, strict=True)
        ]
    )
    wanted, differences = _gradient(causal, expected, weight), []
    for recompute in (False, True):
        scored = score(causal, batch, batch.policy_mask, recompute=recompute).logprob[batch.policy_mask]
        gradient = _gradient(causal, scored, weight)
        differences.append((gradient - wanted).norm() / wanted.norm())
    return {
        "logprob": float((scored - expected).abs().max()),
        "gradient": float(torch.stack(differences).max()),
    }


def _gradient(causal: PreTrainedModel, logprob_N: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient of a weighted sum of log-probabilities, over all trained parameters."""
    parameters = [parameter for parameter in causal.parameters() if parameter.requires_grad]
    total = (logprob_N * weight[: len(logprob_N)]).sum()
    found = torch.autograd.grad(total, parameters, allow_unused=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(parameters, found, strict=True)]
    )


def page(found: Sequence[dict[str, Any]]) -> str:
    """Return the page as Markdown."""
    yes, no, untried = (sum(row["verdict"] == each for row in found) for each in ("yes", "no", "untried"))
    counts = (
        f"Of {len(found)} types Truing trains {yes} as their own forward computes them, and refuses {no}"
        f" by name; of {untried} no tiny model can be made."
    )
    return HEAD.format(version=transformers.__version__, counts=counts) + "".join(map(_row, found))


def _row(row: dict[str, Any]) -> str:
    """Return the line of a type."""
    if row["verdict"] == "yes":
        return f"| `{row['type']}` | yes | {row['how']} | {row['logprob']:.0e} | {row['gradient']:.0e} |\n"
    why = row["why"] + (f": {row['got']}" if row.get("got") else "")
    return f"| `{row['type']}` | {row['verdict']} | {why.replace('|', '/')} | – | – |\n"


def _line(error: BaseException) -> str:
    """Return an error as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


if __name__ == "__main__":
    main()
