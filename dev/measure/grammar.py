"""The cost of a grammar: tokens per second with episode.grammar = "off" and "calls", in turns.

    python -m dev.measure.grammar [--model smollm2-135m] [--rows 16] [--tokens 96] [--repeats 3]

There are no stop ids, so that both sample the same number of tokens. Text: the turn has no prefix. Call: its
prefix is the tag of a call, so that the schema of a tool constrains it.
"""

import argparse
import time
from functools import partial
from statistics import median

import torch

from truing.chat import CallGrammars, make_chat, start_dialogue
from truing.engines.base import Completion, Request
from truing.engines.local.engine import LocalEngine
from truing.envs.workspace import Workspace
from truing.models.load import load
from truing.rollouts.turn_sources import forced_prefix_ids
from truing.types.sampling_params import SamplingParams
from truing.types.token import Origin


def main() -> None:
    """Print the table: the median over repeats."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m")
    for name, default in (("rows", 16), ("tokens", 96), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    wanted = parser.parse_args()
    loaded = load(wanted.model)
    chat = make_chat(loaded.tokenizer, loaded.stop_ids)
    grammars = CallGrammars(chat, loaded.model.config.get_text_config().vocab_size)
    sampler = LocalEngine(loaded.model, context_length=loaded.context_length)
    sampling_params = SamplingParams(max_new_tokens=wanted.tokens)
    env = Workspace(Workspace.Config(kinds=("tiny-file",), train=1, eval=1))
    dialogue, _ = start_dialogue(chat, env.tasks("train")[0])
    print("| turn | grammar | tokens/s | forced | support, ids per token |\n|---|---|---|---|---|")
    for turn, prefix in (("text", ""), ("call", "<tool_call>")):
        forced = forced_prefix_ids(chat, prefix)
        make_matcher = partial(grammars.turn_matcher, dialogue, forced)
        seconds: dict[str, list[float]] = {"off": [], "calls": []}
        drawn: dict[str, list[Completion]] = {}
        for repeat in range(wanted.repeats + 1):
            for grammar, matcher in (("off", None), ("calls", make_matcher)):
                ids = torch.cat([dialogue.token_ids, forced])
                requests = [Request(ids, (repeat, row), make_matcher=matcher) for row in range(wanted.rows)]
                start = time.perf_counter()
                drawn[grammar] = sampler.generate(requests, sampling_params)
                seconds[grammar].append(time.perf_counter() - start)
        for grammar, took in seconds.items():
            speed = wanted.rows * wanted.tokens / median(took[1:])  # the first repeat warms up
            print(f"| {turn} | {grammar} | {speed:.0f} | {_facts(drawn[grammar])} |")


def _facts(drawn: list[Completion]) -> str:
    """Return the share of forced tokens, and the recorded ids per token."""
    total = sum(len(completion.token_ids) for completion in drawn)
    forced = sum(int((completion.origin == Origin.FORCED).sum()) for completion in drawn)
    support = sum(len(completion.support.ids) for completion in drawn if completion.support is not None)
    return f"{forced / total:.0%} | {support / total:.0f}"


if __name__ == "__main__":
    main()
