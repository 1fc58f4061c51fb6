"""Sampling arguments that TRL's log-probabilities leave out are named as the cause."""

from types import SimpleNamespace

import pytest

from truing.doctor.diagnosis import Diagnosis, select_rules
from truing.doctor.evidence import changed_step
from truing.doctor.rules import RULES
from truing.doctor.verdict import Verdict
from truing.integrations.trl.setup import left_out

PLAIN = {
    "temperature": 0.7,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": None,
    "repetition_penalty": 1.0,
    "generation_kwargs": None,
    "vllm_structured_outputs_regex": None,
}

CASES = [
    ({}, ()),
    ({"top_k": 5}, ("top_k=5",)),
    ({"top_k": -1, "top_p": 1, "min_p": 0.0}, ()),
    ({"top_p": 0.9, "min_p": 0.1}, ("top_p=0.9", "min_p=0.1")),
    ({"vllm_structured_outputs_regex": "a+"}, ("vllm_structured_outputs_regex='a+'",)),
    ({"repetition_penalty": 1.1}, ("repetition_penalty=1.1",)),
    ({"top_k": 5, "generation_kwargs": {"top_k": 0}}, ()),
    ({"generation_kwargs": {"top_k": 5, "max_new_tokens": 4}}, ("top_k=5",)),
    ({"generation_kwargs": {"temperature": 0.7}}, ()),
    ({"generation_kwargs": {"temperature": 1.0}}, ("temperature=1.0",)),
    ({"generation_kwargs": {"do_sample": False}}, ("do_sample=False",)),
    ({"generation_kwargs": {"no_repeat_ngram_size": 3}}, ("no_repeat_ngram_size=3",)),
    ({"generation_kwargs": {"cache_implementation": "static", "do_sample": True}}, ()),
]


@pytest.mark.parametrize(("given", "named"), CASES)
def test_the_arguments_that_only_the_sampler_applies(given, named):
    assert left_out(SimpleNamespace(**PLAIN | given)) == named


@pytest.mark.parametrize(
    ("evident", "verdict"), [(True, Verdict.EVIDENCE), (False, Verdict.FACT)], ids=["evident", "not yet"]
)
def test_the_argument_is_the_cause_and_a_fact_while_the_tokens_do_not_show_it(evident, verdict):
    step = RULES["SMP007"].example() if evident else RULES["SMP007"].lookalikes[0]()
    step = changed_step(step, setup={"trainer": "trl", "left_out": ("top_p=0.9", "min_p=0.1")})
    (found,) = Diagnosis(select_rules(["SMP007"], [])).add(step)
    assert found.claim.verdict is verdict
    assert "top_p=0.9, min_p=0.1 of trainer.args" in found.claim.what
    assert "[sampling]" not in found.claim.remedy
    assert "penalty" not in found.claim.what
