"""The ids that a grammar of calls allows at the tokens of a row, by a walk along the row's ids."""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from truing.rollouts.sampler import Sampler
from truing.types.rollout import Task
from truing.types.sample import Sample
from truing.types.token import Origin

AllowedIds = Callable[[Sample, Sequence[int]], Mapping[int, Tensor]]
"""Returns the ids that a grammar allows at some tokens of a row: [V] bool by token; none without one."""


def allowed_ids(sampler: Sampler, tasks: Mapping[str, Task]) -> AllowedIds:
    """Return the allowed ids of the rows of a step, whose tasks are given by id."""

    def of_row(row: Sample, places: Sequence[int]) -> Mapping[int, Tensor]:
        tools = tasks[row.task_id].tools if row.task_id in tasks else ()
        masks: dict[int, Tensor] = {}
        for turn in row.turns if sampler.grammars is not None and tools else ():
            inside = [t for t in places if turn.start <= t < turn.end]
            if not inside:
                continue
            prompt = _without_prefix(row, turn.start)
            text = str(sampler.chat.tokenizer.decode(row.token_ids[:prompt]))
            assert sampler.grammars is not None
            matcher = sampler.grammars.matcher_after(text, tools, row.token_ids[prompt : turn.start])
            for t in range(turn.start, inside[-1] + 1):
                if t in inside and (mask_V := matcher.allowed_ids()) is not None:
                    masks[t] = mask_V
                matcher.accept_token(int(row.token_ids[t]))
        return masks

    return of_row


def _without_prefix(row: Sample, start: int) -> int:
    """Return the end of the prompt before a turn, without the ids that were prefilled."""
    while start and row.origin[start - 1] == Origin.FORCED:
        start -= 1
    return start
