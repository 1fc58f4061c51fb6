"""Templates, tokens and tools of a conversation."""

from contextlib import nullcontext
from dataclasses import replace

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import TOOLS
from truing.types.token import Excluded, Origin

EXAMPLE = ({"role": "user", "content": "max(1, 2)?"}, {"role": "assistant", "content": "2"})


def _example_in_rl(real):
    def draw(sampler, tasks, *args, **kwargs):
        def longer(task):
            first, *others = task.messages
            return replace(task, messages=(first, *EXAMPLE, *others))

        return real(sampler, [longer(task) for task in tasks], *args, **kwargs)

    return draw


EXAMPLE_IN_RL = Fault(
    name="example-in-rl",
    numbers=(68,),
    what="prompts of RL have an example that supervised fine-tuning lacks",
    plant=lambda: patched("truing.rollouts.sampler:Sampler.collect_rollouts", _example_in_rl),
    expected=("TPL003",),
    refusal="differently from the environment's prompt",
)


def _from_its_prefix(span, forced):
    start = span.start
    while start and forced[start - 1]:
        start -= 1
    return replace(span, start=start)


def _forced_as_sampled(real):
    def sample(*args, **kwargs):
        original = real(*args, **kwargs)
        forced = original.origin == Origin.FORCED
        on = original.policy_mask | forced
        logprob = original.sampler_logprob.masked_fill(forced, 0.0)
        return replace(
            original,
            turns=tuple(_from_its_prefix(span, forced) for span in original.turns),
            origin=original.origin.masked_fill(forced, Origin.SAMPLED),
            excluded=original.excluded.masked_fill(forced, Excluded.NO),
            policy_mask=on,
            kl_mask=on,
            value_mask=on,
            sampler_logprob=logprob,
            old_logprob=logprob,
        )

    return sample


FORCED_AS_SAMPLED = Fault(
    name="forced-as-sampled",
    numbers=(23,),
    what="forced tokens are labelled as sampled, with log-probability 0",
    plant=lambda: patched("truing.algos.flatten:_sample", _forced_as_sampled),
    expected=("TOK001", "SMP004"),
    changes={"episode.forced_prefix": "12", "episode.force_rate": 1.0},
)


def _other_template_in_rl(real):
    def begin(chat, task, **options):
        first, *others = task.messages
        spaced = {**first, "content": f"{first['content']} "}
        return real(chat, replace(task, messages=(spaced, *others)), **options)

    return begin


OTHER_TEMPLATE_IN_RL = Fault(
    name="other-template-in-rl",
    numbers=(12,),
    what="prompts of RL are rendered differently from those of SFT",
    plant=lambda: patched("truing.rollouts.collect:start_dialogue", _other_template_in_rl),
    expected=(),
    refusal="the prompts of SFT and RL differ",
)


def _retokenised(real):
    def sample(*args, **kwargs):
        original = real(*args, **kwargs)
        ids = original.token_ids.clone()
        first = original.turns[0].start
        ids[first] = (ids[first] + 1) % 200
        return replace(original, token_ids=ids)

    return sample


RETOKENISED = Fault(
    name="retokenised",
    numbers=(9, 10),
    what="answers are re-encoded, and an id changes",
    plant=lambda: patched("truing.algos.flatten:_sample", _retokenised),
    expected=("TOK001", "TOK006", "TOK007"),
    changes={"eval.tasks": 0},  # an evaluation is refused before a step is
)


def _sft_without_system(real):
    def demonstrate(sampler, tasks, key):
        def bare(task):
            messages = tuple(message for message in task.messages if message["role"] != "system")
            return replace(task, messages=messages)

        return real(sampler, [bare(task) for task in tasks], key)

    return demonstrate


SFT_WITHOUT_SYSTEM = Fault(
    name="sft-without-system",
    numbers=(68,),
    what="supervised fine-tuning lacks the system message of RL",
    plant=lambda: patched("truing.rollouts.sampler:Sampler.play_demonstrations", _sft_without_system),
    expected=(),
    refusal="differently from the environment's prompt",
)


WRONG_TOOL_NAME = Fault(
    name="wrong-tool-name",
    numbers=(61,),
    what="a tool is called by another name than the environment's",
    plant=nullcontext,
    expected=("TOL001",),
    changes={
        **TOOLS,
        "episode.forced_prefix": '<tool_call>\n{"name": "findFile", "arguments": {}}\n</tool_call>',
        "episode.force_rate": 1.0,
    },
)
