"""Programs that call a real endpoint: their rollouts equal those of an environment with the same calls."""

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
import torch
from openai import APIStatusError, OpenAI
from tests.rollouts.programs.scripted import look

from dev.faults.agent_program import give_up
from truing.config import EpisodeConfig
from truing.engines.local.engine import LocalEngine
from truing.envs.program_env import CallRules
from truing.envs.tools import ToolEpisode, tool
from truing.errors import ProgramCrash, ProgramError, RewardError
from truing.rewards import GradeResult
from truing.rollouts.collect import collect
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.running_rollout import remedy_of
from truing.rollouts.turn_sources import DemonstrationTurns, KnownTurns, PolicyTurns
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, Status

QUESTION = {"role": "user", "content": "find it"}
TASK = Task("t", "f", (QUESTION,), tools=(look.spec,))


@dataclass
class Programs:
    """An environment of programs, each a function of a task and a client."""

    program: object
    rewards: dict = field(default_factory=dict)
    notes: tuple = ()
    at_once: int = 16
    calls: CallRules = field(default_factory=CallRules)
    stopped: bool = False

    def tasks(self, split):
        return [TASK]

    def begin_collection(self, kept=2):
        pass

    def stop(self):
        self.stopped = True

    def run(self, task, access, name):
        with OpenAI(base_url=f"{access.url}/v1", api_key=access.key, max_retries=0, timeout=30) as client:
            try:
                return self.program(task, client) or {}
            except APIStatusError as error:
                raise ProgramError(f"the program raised {error}") from error


@dataclass
class Episodes:
    """The same tool as an environment of episodes."""

    rewards: dict = field(default_factory=dict)
    notes: tuple = ()

    def tasks(self, split):
        return [TASK]

    def open(self, task):
        return ToolEpisode([moon])


@tool
def look_up(word: str, n: int) -> str:
    """Look a word up."""
    return "MOON"


moon = replace(look_up, spec=look.spec)


def tool_loop(task, client):
    """A program that calls tools until a turn without a call."""
    messages = [dict(message) for message in task.messages]
    tools = [spec.schema() for spec in task.tools]
    while True:
        choice = client.chat.completions.create(model="policy", messages=messages, tools=tools).choices[0]
        messages.append(choice.message.to_dict())
        if not choice.message.tool_calls:
            return {"said": choice.message.content}
        for call in choice.message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "MOON"})


def context_of(chat, env, tiny, **sampling):
    params = SamplingParams(stop_ids=chat.stop_ids, max_new_tokens=48, **sampling)
    return EpisodeContext(chat, env, params, EpisodeConfig(), tiny.context_length)


def paid(rollout):
    return GradeResult(1.0, {"one": 1.0})


def rollouts(chat, env, tiny, source=None, task=TASK, count=3, grade=paid):
    context = context_of(chat, env, tiny)
    if source is None:
        engine = LocalEngine(tiny.model, context_length=tiny.context_length)
        source = PolicyTurns(engine, context.sampling_params, torch.empty(0, dtype=torch.long))
    (group,) = collect([task], group_size=count, context=context, turn_source=source, grade=grade, key=("k",))
    return group.rollouts


def test_a_program_samples_the_same_tokens_as_an_environment_with_the_same_calls(chat, tiny):
    of_program = rollouts(chat, Programs(tool_loop), tiny)
    of_episode = rollouts(chat, Episodes(), tiny)
    for one, other in zip(of_program, of_episode, strict=True):
        for name in ("token_ids", "context_ids"):
            streams = [[getattr(turn, name).tolist() for turn in each.turns] for each in (one, other)]
            assert streams[0] == streams[1]
        logprobs = [torch.cat([turn.sampler_logprob for turn in each.turns]) for each in (one, other)]
        torch.testing.assert_close(*logprobs)  # other calls were sampled beside them
        assert one.text == other.text


def test_a_demonstration_answers_the_calls_of_the_program(chat, tiny):
    turns = (AssistantMessage(calls=(ToolCall("look", {"word": "a", "n": 2}),)), AssistantMessage("a moon"))
    task = Task("t", "f", (QUESTION,), demonstration=turns, tools=(look.spec,))
    (rollout,) = rollouts(chat, Programs(tool_loop), tiny, DemonstrationTurns(chat), task, 1)
    assert rollout.status is Status.DONE
    assert [turn.call for turn in rollout.turns] == [1, 2]
    assert rollout.outcome["said"] == "a moon"
    assert [message["content"] for message in rollout.messages if message["role"] == "tool"] == ["MOON"]


def test_a_program_may_name_its_last_answer_in_place_of_the_history(chat, tiny):
    ids = []

    def named(task, client):
        first = client.responses.create(model="policy", input="one?")
        ids.append(first.id)
        again = client.responses.create(model="policy", input="two?", previous_response_id=first.id)
        with pytest.raises(APIStatusError, match="no answer"):
            client.responses.create(model="policy", input="?", previous_response_id=ids[0][:-1] + "7")
        return {"said": again.output_text}

    def other(task, client):
        with pytest.raises(APIStatusError, match="that this program got"):
            client.responses.create(model="policy", input="two?", previous_response_id=ids[0])
        return {"said": ask(client).choices[0].message.content}

    (rollout,) = rollouts(chat, Programs(named), tiny, count=1)
    assert rollout.outcome["calls"][1] == {"call": 2, "conversation": 0, "continues": 1}
    assert [message["content"] for message in rollout.messages if message["role"] == "user"] == ["two?"]
    (rollout,) = rollouts(chat, Programs(other), tiny, count=1)
    assert rollout.error == ""


def ask(client, text="hello"):
    return client.chat.completions.create(model="policy", messages=[{"role": "user", "content": text}])


def test_a_program_that_crashes_has_no_reward_and_the_others_have(chat, tiny):
    lock, started = threading.Lock(), []

    def program(task, client):
        with lock:
            started.append(0)
            crashes = len(started) == 2
        ask(client)
        if crashes:
            raise ProgramError("the program exited with code 3")

    made = rollouts(chat, Programs(program), tiny)
    (crashed,) = [rollout for rollout in made if rollout.status is Status.ERROR]
    assert crashed.reward != crashed.reward
    assert "code 3" in crashed.error
    assert all(rollout.reward == 1.0 for rollout in made if rollout is not crashed)


def loops(task, client):
    """Ask without end, and crash where a call is refused."""
    try:
        while True:
            ask(client)
    except APIStatusError as error:
        crash = ProgramCrash("the program exited with code 1")
        crash.outcome = {"output": None, "crash": "crashed with exit code 1"}
        raise crash from error


def test_a_program_that_crashes_at_a_limit_is_truncated_and_graded(chat, tiny):
    env = Programs(loops, calls=CallRules(max_calls=2))
    for rollout in rollouts(chat, env, tiny):
        assert (rollout.status, rollout.ended_by) == (Status.TRUNCATED, EndedBy.TURNS)
        assert (rollout.reward, rollout.error, rollout.crashed) == (1.0, "", False)
        assert "max_calls = 2" in rollout.outcome["refused"][0]
        assert len(rollout.outcome["calls"]) == 2


def test_a_reward_that_cannot_judge_what_such_a_program_left_fails_its_rollout_alone(chat, tiny):
    def grade(rollout):
        raise RewardError("reward 'right' raised TypeError")

    env = Programs(loops, calls=CallRules(max_calls=2))
    rollout, *_ = rollouts(chat, env, tiny, grade=grade)
    assert (rollout.status, rollout.crashed) == (Status.ERROR, False)
    assert "max_calls = 2" in rollout.error
    assert "catch the refusal" in rollout.error
    assert "ok_codes" not in rollout.error
    with pytest.raises(RewardError, match="TypeError"):
        rollouts(chat, Programs(lambda task, client: {"said": ask(client).id}), tiny, grade=grade)


def test_a_program_without_a_call_has_no_reward(chat, tiny):
    (rollout,) = rollouts(chat, Programs(lambda task, client: None), tiny, count=1)
    assert rollout.status is Status.ERROR
    assert rollout.error.startswith("the program made no call\n  remedy: it calls the policy")


def test_answers_that_are_not_trained_name_what_trains_them(chat, tiny):
    nothing = CallRules(trains=lambda call, first: False)
    (rollout,) = rollouts(
        chat, Programs(lambda task, client: ask(client) and None, calls=nothing), tiny, count=1
    )
    assert rollout.status is Status.ERROR
    assert rollout.error.startswith("the program got no answer that is trained\n")
    assert 'env.train = "all" with env.train_system = ' in rollout.error
    assert remedy_of(rollout) == ""


class SlowTurns(DemonstrationTurns):
    """A policy that takes longer than some clients wait."""

    def _next(self, conversation):
        time.sleep(0.2)
        return super()._next(conversation)


def test_a_request_that_is_given_up_harms_nothing(chat, tiny):
    def program(task, client):
        give_up(str(client.base_url).rstrip("/"), client.api_key, [{"role": "user", "content": "never mind"}])
        return {"said": ask(client, "and now?").choices[0].message.content}

    turns = (AssistantMessage("moon"), AssistantMessage("sun"))
    task = Task("t", "f", ({"role": "user", "content": "hello"},), demonstration=turns)
    for rollout in rollouts(chat, Programs(program), tiny, SlowTurns(chat), task):
        assert ["undelivered" in note for note in rollout.outcome["calls"]] == [True, False]
        assert [turn.call for turn in rollout.turns] == [2]


def test_a_slow_program_does_not_delay_the_others(chat, tiny):
    lock, order, ended = threading.Lock(), [], []

    def program(task, client):
        with lock:
            order.append(0)
            is_slow = len(order) == 1
        ask(client)
        if is_slow:
            deadline = time.monotonic() + 20
            while len(ended) < 3 and time.monotonic() < deadline:
                time.sleep(0.01)
            ask(client, "and now?")
        with lock:
            ended.append("slow" if is_slow else "fast")

    rollouts(chat, Programs(program), tiny, count=4)
    assert ended == ["fast", "fast", "fast", "slow"]


def test_two_hundred_programs_are_open_at_once(chat, tiny):
    barrier = threading.Barrier(200, timeout=60)

    def program(task, client):
        barrier.wait()
        return {"said": ask(client).choices[0].message.content}

    turns = (AssistantMessage("moon"),)
    task = Task("t", "f", ({"role": "user", "content": "hello"},), demonstration=turns)
    made = rollouts(chat, Programs(program, at_once=200), tiny, DemonstrationTurns(chat), task, 200)
    assert [rollout.outcome["said"] for rollout in made] == ["moon"] * 200


def test_the_key_of_an_ended_program_is_refused(chat, tiny):
    kept, refusals = [], []

    def program(task, client):
        ask(client)
        if kept:
            other = OpenAI(base_url=client.base_url, api_key=kept[0], max_retries=0)
            try:
                ask(other)
            except Exception as error:  # noqa: BLE001 — looked at below
                refusals.append(f"{type(error).__name__}: {error}")
        kept.append(client.api_key)

    made = rollouts(chat, Programs(program, at_once=1), tiny, count=2)
    assert [len(rollout.turns) for rollout in made] == [1, 1]
    assert "AuthenticationError" in refusals[0]
    assert "its program has ended" in refusals[0]


def test_an_interrupt_stops_the_programs_and_refuses_their_calls(chat, tiny):
    refusals = []

    def program(task, client):
        try:
            ask(client)
        except Exception as error:
            refusals.append(type(error).__name__)
            raise

    @contextmanager
    def interrupted():
        def interrupt(conversation):
            raise KeyboardInterrupt

        yield KnownTurns(interrupt)

    env = Programs(program)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        rollouts(chat, env, tiny, SimpleNamespace(running_turns=interrupted), count=2)
    assert env.stopped
    assert time.monotonic() - started < 10
    assert refusals == ["AuthenticationError"] * 2
