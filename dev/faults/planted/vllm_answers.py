"""What a vLLM server answers: ids, log-probabilities, routes."""

import json
import math
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from queue import Empty, SimpleQueue
from threading import Lock

import torch
from starlette.responses import JSONResponse

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import MIXTURE, VLLM_LORA


def _vllm_answer_of_two_versions(real):
    def sample(self, ids, scope, params):
        turn = real(self, ids, scope, params)
        turn.versions[0] = "before"
        return turn

    return sample


VLLM_ANSWER_OF_TWO_VERSIONS = Fault(
    name="vllm-answer-of-two-versions",
    numbers=(83,),
    what="a turn spans a publication",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.sample", _vllm_answer_of_two_versions),
    expected=(),
    changes=VLLM_LORA,
    refusal="other weights than those of its publication sampled it",
    seen=("labs-molt#124",),
)


def _vllm_answers_cached(real):
    cache, lock = {}, Lock()

    def generate(self, body):
        key = tuple(body["token_ids"]), body["model"], "seed" in body["sampling_params"]
        with lock:
            if key not in cache:
                cache[key] = real(self, body)
            return cache[key]

    return generate


VLLM_ANSWERS_CACHED = Fault(
    name="vllm-answers-cached",
    numbers=(81,),
    what="a proxy answers equal prompts from its cache",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.generate", _vllm_answers_cached),
    expected=(),
    changes=VLLM_LORA,
    refusal="it is an answer to another request",
)


def _vllm_answers_cached_with_ids(real):
    cache, lock = {}, Lock()

    def generate(self, body):
        key = tuple(body["token_ids"]), body["model"], "seed" in body["sampling_params"]
        with lock:
            if key not in cache:
                cache[key] = real(self, body)
            answer = json.loads(cache[key].body)
        return JSONResponse(answer | {"request_id": f"generate-tokens-{body.get('request_id', 0)}"})

    return generate


VLLM_ANSWERS_CACHED_WITH_IDS = Fault(
    name="vllm-answers-cached-with-ids",
    numbers=(81,),
    what="a proxy answers equal prompts from its cache, with the id of each request",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.generate", _vllm_answers_cached_with_ids),
    expected=("SMP008", "SMP011"),
    changes=VLLM_LORA,
    refusal="the engine gives equal answers to equal prompts, although their seeds differ",
)


WAIT = 0.2
"""Seconds that an answer waits for another one."""


def exchanged(real, kind):
    """Exchange the answers of two requests whose ids are of one kind."""
    waiting, lock = {}, Lock()

    def sample(self, ids, scope, params):
        turn = real(self, ids, scope, params)
        if params["prompt_logprobs"] is not None:
            return turn
        mine = turn, SimpleQueue()
        with lock:
            other = waiting.pop(kind(ids), None)
            if not other:
                waiting[kind(ids)] = mine
        if other:
            other[1].put(turn)
            return other[0]
        with suppress(Empty):
            return mine[1].get(timeout=WAIT)
        with lock:
            taken = waiting.get(kind(ids)) is not mine
            if not taken:
                del waiting[kind(ids)]
        return mine[1].get() if taken else turn

    return sample


def _vllm_answers_exchanged(real):
    return exchanged(real, lambda ids: None)


VLLM_ANSWERS_EXCHANGED = Fault(
    name="vllm-answers-exchanged",
    numbers=(81,),
    what="answers of two requests are exchanged",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.sample", _vllm_answers_exchanged),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)


def _vllm_answers_exchanged_in_groups(real):
    return exchanged(real, lambda ids: tuple(ids))


VLLM_ANSWERS_EXCHANGED_IN_GROUPS = Fault(
    name="vllm-answers-exchanged-in-groups",
    numbers=(81,),
    what="answers of two rollouts at one task are exchanged",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.sample", _vllm_answers_exchanged_in_groups),
    expected=("SMP009",),
    changes=VLLM_LORA,
)


FROM, TO = 97, 98
"""An id, and the one that takes its place."""


def _vllm_ids_changed(real):
    def answer(turn, request, scored):
        ids = [TO if token == FROM else token for token in turn.ids]
        pairs = zip(ids, turn.ids, turn.top_logprobs, strict=True)
        return real(
            replace(turn, ids=ids, top_logprobs=[{i: each[t]} for i, t, each in pairs]), request, scored
        )

    return answer


VLLM_IDS_CHANGED = Fault(
    name="vllm-ids-changed",
    numbers=(81,),
    what="one id of vLLM's answers is replaced by another",
    plant=lambda: patched("dev.faults.fake_vllm.app:to_answer", _vllm_ids_changed),
    expected=("RAT002", "SMP009"),
    changes={**VLLM_LORA, "sampling.max_new_tokens": 12},
)


def _vllm_ids_off_by_one(real):
    def answer(turn, request, scored):
        ids = [token + 1 for token in turn.ids]
        top = [{token + 1: logprob for token, logprob in each.items()} for each in turn.top_logprobs]
        return real(replace(turn, ids=ids, top_logprobs=top), request, scored)

    return answer


VLLM_IDS_OFF_BY_ONE = Fault(
    name="vllm-ids-off-by-one",
    numbers=(81,),
    what="vLLM's answers have each id plus 1",
    plant=lambda: patched("dev.faults.fake_vllm.app:to_answer", _vllm_ids_off_by_one),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)


def _vllm_likeliest_logprob(real):
    def answer(logits, processed, token, count):
        found = real(logits, processed, token, count)
        return found | {token: float(processed.log_softmax(0).max())}

    return answer


VLLM_LIKELIEST_LOGPROB = Fault(
    name="vllm-likeliest-logprob",
    numbers=(80,),
    what="vLLM returns the log-probability of the likeliest id",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:top_logprobs", _vllm_likeliest_logprob),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)


def _vllm_logprobs_cumulative(real):
    def answer(turn, request, scored):
        own = [each[token] for token, each in zip(turn.ids, turn.top_logprobs, strict=True)]
        sums = [{token: total} for token, total in zip(turn.ids, accumulate(own), strict=True)]
        return real(replace(turn, top_logprobs=sums), request, scored)

    return answer


VLLM_LOGPROBS_CUMULATIVE = Fault(
    name="vllm-logprobs-cumulative",
    numbers=(80,),
    what="vLLM returns the log-probability of the turn so far",
    plant=lambda: patched("dev.faults.fake_vllm.app:to_answer", _vllm_logprobs_cumulative),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)


def _vllm_logprobs_rounded(real):
    def answer(logits, processed, token, count):
        return {
            id_: float(torch.tensor(each).bfloat16())
            for id_, each in real(logits, processed, token, count).items()
        }

    return answer


VLLM_LOGPROBS_ROUNDED = Fault(
    name="vllm-logprobs-rounded",
    numbers=(80,),
    what="vLLM's log-probabilities are rounded to bfloat16",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:top_logprobs", _vllm_logprobs_rounded),
    expected=("SMP011", "SMP004"),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)


def _vllm_logprobs_shifted(real):
    def answer(turn, request, scored):
        before = [turn.top_logprobs[0], *turn.top_logprobs[:-1]]
        shifted = [{token: next(iter(each.values()))} for token, each in zip(turn.ids, before, strict=True)]
        return real(replace(turn, top_logprobs=shifted), request, scored)

    return answer


VLLM_LOGPROBS_SHIFTED = Fault(
    name="vllm-logprobs-shifted",
    numbers=(80,),
    what="vLLM's log-probabilities are one token late",
    plant=lambda: patched("dev.faults.fake_vllm.app:to_answer", _vllm_logprobs_shifted),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)


def _vllm_nan(real):
    return lambda logits, processed, token, count: real(logits, processed, token, count) | {token: math.nan}


VLLM_NAN = Fault(
    name="vllm-nan",
    numbers=(84,),
    what="vLLM returns NaN as a log-probability",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:top_logprobs", _vllm_nan),
    expected=(),
    changes=VLLM_LORA,
    refusal="vLLM returned an impossible log-probability",
)


def _vllm_other_engine_answers(real):
    asked = []

    def generate(self, body):
        asked.append(None)
        return real(self, body | {"model": self.options.name} if len(asked) % 3 == 0 else body)

    return generate


VLLM_OTHER_ENGINE_ANSWERS = Fault(
    name="vllm-other-engine-answers",
    numbers=(75,),
    what="a second engine with older weights answers some of the requests",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.generate", _vllm_other_engine_answers),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="another engine answers some of the requests",
)


def _vllm_raw_logprobs(real):
    return lambda logits, processed, token, count: real(logits, logits, token, count)


VLLM_RAW_LOGPROBS = Fault(
    name="vllm-raw-logprobs",
    numbers=(80,),
    what="vLLM returns raw in place of processed log-probabilities",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:top_logprobs", _vllm_raw_logprobs),
    expected=("SMP011",),
    changes={**VLLM_LORA, "sampling.temperature": 0.7},
    refusal="without any parameter (raw log-probabilities)",
)


def _vllm_routes_shifted(real):
    return lambda routes: None if routes is None else real(routes.roll(1, 0))


VLLM_ROUTES_SHIFTED = Fault(
    name="vllm-routes-shifted",
    numbers=(88,),
    what="vLLM's answers have each token's expert routes one token late",
    plant=lambda: patched("dev.faults.fake_vllm.answers:encoded_routes", _vllm_routes_shifted),
    expected=("SMP012",),
    changes=MIXTURE,
    refusal="no single sampling parameter was found that gives them",
)


TEMPERATURE = 0.8


def _vllm_unbounded_logprobs(real):
    return lambda logits, processed, token, count: {
        id_: float((logits / TEMPERATURE).log_softmax(0)[id_])
        for id_ in real(logits, processed, token, count)
    }


VLLM_UNBOUNDED_LOGPROBS = Fault(
    name="vllm-unbounded-logprobs",
    numbers=(80,),
    what="vLLM samples from top-k and returns log-probabilities of the whole distribution",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:top_logprobs", _vllm_unbounded_logprobs),
    expected=("SMP011",),
    changes={**VLLM_LORA, "sampling.top_k": 12, "sampling.temperature": TEMPERATURE},
    refusal="of the whole distribution, without top-k, top-p or min-p",
)
