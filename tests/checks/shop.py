"""A shop in which nothing is wrong, to plant faults in."""

from truing.envs.tools import ToolEpisode, tool
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Task

PRICES = {
    f"{colour} {thing}": 10 * i + j
    for i, colour in enumerate(("red", "blue"))
    for j, thing in enumerate(("cup", "pen", "hat"))
}


@tool
def price(item: str) -> str:
    """What something costs."""
    return str(PRICES[item])


def exact(rollout, task):
    return float(rollout.text == task.answer)


class Quiz:
    """Questions of one turn."""

    notes = ()

    def __init__(self, reward=exact, *, weight=1.0):
        self.rewards = {"reward": (reward, weight)}
        self.made = {"train": [self.task(item) for item in PRICES if "red" in item]}
        self.made["eval"] = [self.task(item) for item in PRICES if "blue" in item]

    def task(self, item):
        asked = ({"role": "user", "content": f"What costs a {item}?"},)
        return Task(item, "quiz", asked, str(PRICES[item]), str(PRICES[item]))

    def tasks(self, split):
        return self.made[split]


class Shop(Quiz):
    """The same questions, with a tool to find the answer by."""

    def __init__(self, reward=exact, *, open_episode=lambda task: ToolEpisode([price]), **changes):
        self.changes = changes
        super().__init__(reward)
        self.open_task = open_episode

    def task(self, item):
        asked = ({"role": "user", "content": f"What costs a {item}?"},)
        demonstration = (
            AssistantMessage(calls=(ToolCall("price", {"item": item}),)),
            AssistantMessage(str(PRICES[item])),
        )
        facts = {"demonstration": demonstration, "tools": (price.spec,)} | self.changes
        return Task(item, "shop", asked, str(PRICES[item]), **facts)

    def open(self, task):
        return self.open_task(task)
