"""Tasks with one prompt and several answers: nobody can know which one is meant."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from truing.envs.base import Env, MultiTurnEnv
from truing.envs.program_env import ProgramEnv
from truing.types.rollout import Task
from truing.utils.format import with_count


def contradictions(env: Env, tasks: Sequence[Task]) -> Iterator[str]:
    """Yield a note if tasks show the same messages and tools, and have different answers.

    In an environment of several turns nothing: what tools or a program show later may tell the tasks apart.
    """
    if isinstance(env, MultiTurnEnv | ProgramEnv):
        return
    by_prompt: dict[str, dict[str, str]] = defaultdict(dict)  # ids by answer
    for task in tasks:
        prompt = repr(([dict(message) for message in task.messages], task.tools))
        by_prompt[prompt].setdefault(repr(task.answer), task.task_id)
    several = [list(ids.values()) for ids in by_prompt.values() if len(ids) > 1]
    if several:
        first, second, *_ = several[0]
        yield (
            f"{with_count(len(several), 'prompt has', 'prompts have')} several answers, such as tasks {first}"
            f" and {second}: no policy can know which one is graded"
        )
