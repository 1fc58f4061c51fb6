"""A policy that answers calls of programs by a script, and requests in each API that ask it."""

from concurrent.futures import Future
from itertools import count

from truing.types.message import AssistantMessage, ToolCall
from truing.types.model_call import ModelReply
from truing.types.status import FinishReason

REASONED = AssistantMessage("It is 11.5 °C.", reasoning="The tool said so.")
CALLING = AssistantMessage(
    "I look.", (ToolCall("look", {"town": "Köln", "n": 1}), ToolCall("look", {}, "own"))
)


def make_reply(message=REASONED, finish=FinishReason.STOP, id="r1"):
    return ModelReply(id, message, finish, 7, 5)


class Policy:
    """Answers by a function from a call to a reply, an error, or None: then the future stays open."""

    def __init__(self):
        self.calls, self.futures, self.settled, self._numbers = [], [], [], count()
        self.replies = {}
        self.say = lambda call: make_reply(id=f"r{next(self._numbers)}")

    def answer(self, key, call):
        self.calls.append((key, call))
        future = Future()
        self.futures.append(future)
        said = self.say(call)
        if isinstance(said, Exception):
            future.set_exception(said)
        elif said is not None:
            future.set_result(said)
        return future

    def settle(self, key, call, reply, said):
        self.settled.append((key, reply.id, said is not None))
        self.replies[key, reply.id] = call, reply

    def earlier(self, key, reply_id):
        return self.replies[key, reply_id]

    @property
    def call(self):
        return self.calls[-1][1]
