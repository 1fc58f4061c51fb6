"""Texts that were graded, beside an independent decode of the ids that are trained."""

from collections.abc import Mapping, Sequence

from truing.chat import Chat
from truing.measurements.measurement import Measurement
from truing.types.facts import Facts
from truing.types.rollout import Rollout
from truing.types.sample import Sample
from truing.types.token import Origin
from truing.types.token_facts import GradedTexts
from truing.utils.format import shorten
from truing.utils.rng import seed_of

MAX_ROLLOUTS = 16
"""Rollouts of a step whose text is decoded again."""


class DecodedTexts(Measurement):
    """Graded texts of up to 16 rollouts, beside the tokenizer's decode of the last turn's ids."""

    facts = ("graded_text",)
    cost = "a decode of 16 turns"

    def after_step(self) -> Facts:
        """Return how many differ, and the first difference."""
        step = self.step
        samples = list(_last_samples(step.all_samples).values())
        if not samples:
            return {}
        first = seed_of(step.recipe.seed, step.stage, step.step, "decoded") % len(samples)
        chosen = [*samples[first:], *samples[:first]][:MAX_ROLLOUTS]
        return {"graded_text": graded_texts(step.sampler.chat, chosen, step.samples.rollouts)}


def _last_samples(samples: Sequence[Sample]) -> dict[str, Sample]:
    """Return the last sample of each rollout that has one with turns."""
    in_order = sorted(samples, key=lambda sample: sample.number)
    return {sample.rollout_id: sample for sample in in_order if sample.turns}


def graded_texts(chat: Chat, samples: Sequence[Sample], rollouts: Mapping[str, Rollout]) -> GradedTexts:
    """Compare the text of each sample's rollout, as graded and as recorded, with that of its last turn."""
    fact: GradedTexts = {"checked": len(samples), "other": 0}
    for sample in samples:
        expected = _decoded(chat, sample)
        texts = [sample.text, *([rollouts[sample.rollout_id].text] if sample.rollout_id in rollouts else [])]
        got = next((text for text in texts if letters(text) != letters(expected)), None)
        if got is not None:
            fact["other"] += 1
            if fact["other"] == 1:
                fact["sample_id"], fact["got"], fact["expected"] = (
                    sample.sample_id,
                    shorten(got),
                    shorten(expected),
                )
    return fact


def _decoded(chat: Chat, sample: Sample) -> str:
    """Return the text of the last turn, with the forced tokens before it, and without its stop token."""
    turn = sample.turns[-1]
    start, end = turn.start, turn.end
    while start and sample.origin[start - 1] == Origin.FORCED:
        start -= 1
    if end > start and int(sample.token_ids[end - 1]) in chat.stop_ids:
        end -= 1
    return text_of_ids(chat, sample.token_ids[start:end].tolist())


def text_of_ids(chat: Chat, ids: list[int]) -> str:
    """Return the tokenizer's decode of some ids, with special tokens."""
    text = chat.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)  # of one list of ids
    return text


def letters(text: str) -> str:
    """Return a text without white space and broken characters, which two decoders write differently."""
    return "".join(text.replace("\N{REPLACEMENT CHARACTER}", "").split())
