"""tau-bench retail: a small shop of our own, and the published data for what it holds."""

import json
from functools import cache

import pytest
from folders import rows
from taubench_folder import ADDRESS, FILES, TOOLS, tool

from truing.envs import checked_tasks, make_env
from truing.errors import DataError
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Rollout
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status


def write(folder, files):
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (folder / "retail_policy.md").write_text("# Be kind\n", encoding="utf-8")
    return make_env("taubench", {"data": str(folder)})


@pytest.fixture
def small(tmp_path):
    return write(tmp_path, FILES)


@pytest.fixture
def shop(small):
    return small.open(small.tasks("train")[0])


@cache
def env_over(folder):
    return make_env("taubench", {"data": str(folder)})


@pytest.fixture
def env(data):
    return env_over(data / "tau_bench")


def everything(env):
    return {task.task_id: task for split in ("train", "eval") for task in env.tasks(split)}


def call_tool(episode, name, *arguments):
    """What the model reads after one call, with arguments in the order of the tool's."""
    named = dict(zip(TOOLS[name], arguments, strict=True))
    (message,) = episode.reply(AssistantMessage(calls=(ToolCall(name, named),)))
    return message["content"]


def reward_of(env, task, outcome, text, status=Status.DONE):
    """Solved, and with the right data."""
    rollout = Rollout("r", "g", task, (), text, status, SamplingParams(), outcome=outcome)
    return tuple(env.rewards[name][0](rollout, task) for name in ("solved", "state"))


def demonstrated(env, task):
    """The outcome of the demonstration, its last words, and the answers of the tools."""
    episode = env.open(task)
    entries = [message for said in task.demonstration for message in episode.reply(said)]
    return episode.outcome(), task.demonstration[-1].content, entries


def balance(episode):
    """What the gift card of the small shop's user holds."""
    return episode.outcome()["users"]["ada"]["payment_methods"]["gift_card_1"]["balance"]


def test_a_task_shows_policy_instruction_and_tools(small):
    task = everything(small)["t0"]
    system, user = (message["content"] for message in task.messages)
    assert system.startswith("# Be kind\n\nThe customer sends one message")
    assert user == "You are Ada, for the 0th time."
    assert [spec.name for spec in task.tools] == list(TOOLS)
    assert "t9" not in everything(small)
    assert small.notes[0].endswith(": 1")
    assert small.idle == ("t8", "t10")


def test_lookups(shop):
    assert call_tool(shop, "find_user_id_by_email", "ADA@mail.com") == "ada"
    assert call_tool(shop, "find_user_id_by_name_zip", "ada", "fox", "10001") == "ada"
    assert json.loads(call_tool(shop, "get_order_details", "#D"))["status"] == "delivered"
    assert json.loads(call_tool(shop, "list_all_product_types")) == {"Mug": "mug"}
    assert shop.outcome() == {}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.1 + 0.2", "0.3"),
        ("-(2 - 5) * 4 / 8", "1.5"),
        (" 2**9 - 7 // 2", "509.0"),
        ("1/0", "Error: division by zero"),
        ("2(3)", "Error: 'int' object is not callable"),
        ("007", "Error: leading zeros in decimal integer literals are not permitted"),
        ("two", "Error: invalid characters in expression"),
        ("9**9**9**9", "Error"),
        ("(" * 400, "Error"),
        ("1+" * 400, "Error: an expression has"),
    ],
)
def test_calculate(shop, expression, value):
    assert call_tool(shop, "calculate", expression).startswith(value)


def test_a_cancelled_order_is_refunded_to_the_gift_card(shop):
    cancelled = json.loads(call_tool(shop, "cancel_pending_order", "#G", "no longer needed"))
    assert cancelled["status"] == "cancelled"
    assert [line["transaction_type"] for line in cancelled["payment_history"]] == ["payment", "refund"]
    assert balance(shop) == 30.1  # 20 + 10.1
    assert shop.outcome()["orders"] == {"#G": cancelled}


def test_another_payment_method_pays_and_the_first_is_refunded(shop):
    paid = json.loads(call_tool(shop, "modify_pending_order_payment", "#G", "paypal_2"))["payment_history"]
    lines = [(line["transaction_type"], line["payment_method_id"], line["amount"]) for line in paid[1:]]
    assert lines == [("payment", "paypal_2", 10.1), ("refund", "gift_card_1", 10.1)]
    assert balance(shop) == 30.1


def test_items_are_swapped_one_by_one_and_the_difference_is_paid(shop):
    swap = ("#P", ["red", "red"], ["blue", "red"], "gift_card_1")
    done = json.loads(call_tool(shop, "modify_pending_order_items", *swap))
    assert [item["item_id"] for item in done["items"]] == ["blue", "red", "blue"]
    assert [item["price"] for item in done["items"]] == [15.3, 10.1, 15.3]
    assert (
        done["payment_history"][-1]["amount"] == 15.3 - 10.1
    )  # 5.200000000000001: the shop rounds what it holds, and not this
    assert balance(shop) == 14.8  # 20 - 5.2
    assert json.loads(call_tool(shop, "get_order_details", "#P"))["status"] == "pending (item modified)"
    assert "non-pending" in call_tool(shop, "cancel_pending_order", "#P", "no longer needed")


def test_exchange_and_return_are_asked_for_and_nothing_is_paid_yet(small):
    exchange, give_back = (small.open(small.tasks("train")[0]) for _ in range(2))
    swap = ("#D", ["red", "blue"], ["red", "blue"], "paypal_2")
    done = json.loads(call_tool(exchange, "exchange_delivered_order_items", *swap))
    assert (done["status"], done["exchange_price_difference"]) == ("exchange requested", 0)
    assert (done["exchange_items"], done["exchange_new_items"]) == (["blue", "red"], ["blue", "red"])
    done = json.loads(call_tool(give_back, "return_delivered_order_items", "#D", ["red"], "gift_card_1"))
    assert (done["status"], done["return_items"]) == ("return requested", ["red"])
    assert exchange.outcome().keys() == give_back.outcome().keys() == {"orders"}


def test_addresses(shop):
    moved = list((ADDRESS | {"city": "Rome"}).values())
    assert (
        json.loads(call_tool(shop, "modify_pending_order_address", "#P", *moved))["address"]["city"] == "Rome"
    )
    assert json.loads(call_tool(shop, "modify_user_address", "ada", *moved))["address"]["city"] == "Rome"
    call_tool(shop, "modify_user_address", "ada", *ADDRESS.values())
    assert shop.outcome().keys() == {"orders"}, "who moves back has not moved"


OTHER_METHOD = "the new payment method should be different from the current one"
NO_FUNDS = "insufficient gift card balance to pay for the {}"
OTHER_COUNT = "the number of items to be exchanged should match"
NOT_PAID_BY = "payment method should be either the original payment method or a gift card"


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("find_user_id_by_email", ["bob@mail.com"], "user not found"),
        ("get_order_details", ["P"], "order not found"),
        ("cancel_pending_order", ["#D", "no longer needed"], "non-pending order cannot be cancelled"),
        ("cancel_pending_order", ["#P", "bored"], "invalid reason"),
        (
            "modify_pending_order_payment",
            ["#P", "paypal_2"],
            OTHER_METHOD,
        ),
        (
            "modify_pending_order_payment",
            ["#P", "gift_card_1"],
            NO_FUNDS.format("order"),
        ),
        ("modify_pending_order_payment", ["#P", "gift_card_9"], "payment method not found"),
        (
            "modify_pending_order_items",
            ["#P", ["red"], ["gold"], "gift_card_1"],
            NO_FUNDS.format("new item"),
        ),
        (
            "modify_pending_order_items",
            ["#P", ["red"], ["grey"], "paypal_2"],
            "new item grey not found or available",
        ),
        ("modify_pending_order_items", ["#P", ["red"] * 3, ["blue"] * 3, "paypal_2"], "red not found"),
        (
            "modify_pending_order_items",
            ["#P", ["red"], [], "paypal_2"],
            OTHER_COUNT,
        ),
        (
            "return_delivered_order_items",
            ["#D", ["red"], "paypal_2"],
            NOT_PAID_BY,
        ),
        ("return_delivered_order_items", ["#D", ["gold"], "gift_card_1"], "some item not found"),
    ],
)
def test_the_shop_refuses(shop, name, arguments, told):
    answer = call_tool(shop, name, *arguments)
    assert answer == f"Error: {told}"
    assert shop.outcome() == {}


def test_records_are_written_as_the_shop_writes_them(shop):
    shuffled = dict(reversed((ADDRESS | {"city": "Århus"}).items()))
    (message,) = shop.reply(
        AssistantMessage(calls=(ToolCall("modify_user_address", {"user_id": "ada", **shuffled}),))
    )
    fields = ("address1", "address2", "city", "state", "country", "zip")
    written = json.dumps({field: shuffled[field] for field in fields})
    assert r"\u00c5rhus" in written
    assert written in message["content"]


def test_an_item_that_came_in_may_be_the_next_to_go(shop):
    swap = ("#D", ["red", "blue"], ["blue", "gold"], "credit_card_3")
    assert "exchange_items" in call_tool(shop, "exchange_delivered_order_items", *swap)
    swap = ("#P", ["red", "blue"], ["blue", "gold"], "paypal_2")
    done = json.loads(call_tool(shop, "modify_pending_order_items", *swap))
    # the first red becomes blue, and then the first blue, which is the same place, becomes gold
    assert [item["item_id"] for item in done["items"]] == ["gold", "red", "blue"]


def test_an_argument_that_a_tool_does_not_have_is_reported_to_the_model(shop):
    call = ToolCall("get_order_details", {"order_id": "#P", "verbose": "yes"})
    (message,) = shop.reply(AssistantMessage(calls=(call,)))
    assert message["content"].startswith("Error: wrong arguments for get_order_details")


def test_data_and_words_both_count(small):
    task = everything(small)["t0"]
    outcome, words, _ = demonstrated(small, task)
    assert reward_of(small, task, outcome, words) == (1.0, 1.0)
    assert reward_of(small, task, outcome, "You get 1010.10 for the MUG.") == (1.0, 1.0)
    assert reward_of(small, task, outcome, "You get 1010.1 for the mug.") == (0.0, 1.0)
    assert reward_of(small, task, {}, words) == (0.0, 0.0)
    assert reward_of(small, task, outcome, words, Status.TRUNCATED) == (0.0, 1.0)


def test_a_folder_of_another_form_is_refused(tmp_path):
    with pytest.raises(DataError, match="a tool that tau-bench retail does not have"):
        write(tmp_path, FILES | {"tools": [tool("_only", [])]})
    (tmp_path / "tools.jsonl").write_text(json.dumps(tool("calculate", ["expression"])), encoding="utf-8")
    (tmp_path / "retail_policy.md").unlink()
    with pytest.raises(DataError, match=r"retail_policy\.md"):
        make_env("taubench", {"data": str(tmp_path)})


def test_customers_do_not_straddle_the_splits(env, data):
    stored = rows(data / "tau_bench" / "tasks.jsonl")
    customers = {row["id"]: row["user_id"] for row in stored if row["domain"] == "retail"}
    trained_on, held_out = ({customers[t.task_id] for t in tasks} for tasks in checked_tasks(env).values())
    assert trained_on.isdisjoint(held_out)
    assert trained_on | held_out == set(customers.values())
    assert everything(env).keys() == customers.keys()
    assert env.notes[0].endswith(f": {len(stored) - len(customers)}")


def test_the_published_splits_and_what_doing_nothing_solves_of_them(published):
    env = env_over(published / "tau_bench")
    assert {split: len(env.tasks(split)) for split in ("train", "eval")} == {"train": 114, "eval": 39}
    # 50, 57 and 65 ask for no change; in the others the shop refuses what the reference asks for
    listed = ["test-12", "test-50", "test-57", "test-65", "test-106", "train-288"]
    assert sorted(env.idle) == sorted(f"taubench-retail-tasks_{name}" for name in listed)


def test_each_reference_solves_its_task_and_doing_nothing_only_those_listed(env):
    idle = set()
    for task in everything(env).values():
        outcome, words, _ = demonstrated(env, task)
        assert reward_of(env, task, outcome, words) == (1.0, 1.0)
        if reward_of(env, task, {}, "")[0]:
            idle.add(task.task_id)
    assert idle == set(env.idle)
    assert idle


REFUSED = {
    "t10": NOT_PAID_BY,
    "test-12": NOT_PAID_BY,
    "test-13": NOT_PAID_BY,
    "test-64": "non-delivered order cannot be exchanged",
    "test-106": NO_FUNDS.format("price difference"),
    "train-288": NO_FUNDS.format("price difference"),
    "train-376": NO_FUNDS.format("new item"),
}
"""The actions that the data of their own folder does not allow; t10 is of the written one."""


def test_the_actions_go_through_but_for_those_that_the_data_forbids(env):
    refused = {}
    for task in everything(env).values():
        for message in demonstrated(env, task)[2]:
            looks_up = message["name"].startswith(("find_", "get_"))
            if message["content"].startswith("Error") and not looks_up:
                refused[task.task_id.removeprefix("taubench-retail-tasks_")] = message["content"]
    names = {task_id.removeprefix("taubench-retail-tasks_") for task_id in everything(env)}
    assert refused == {name: f"Error: {told}" for name, told in REFUSED.items() if name in names}
    assert refused


@pytest.mark.parametrize(
    ("number", "name", "told"),
    [
        (44, "calculate", ["-17.99"]),
        (28, "calculate", ["918.43"]),
        (63, "calculate", ["1288.65"]),
        (16, "calculate", ["8276.23"]),
        (44, "modify_pending_order_items", [17.99]),
        (70, "exchange_delivered_order_items", [22.55]),
        (96, "exchange_delivered_order_items", [167.87, -60.78]),
    ],
)
def test_amounts_are_those_that_the_published_outputs_name(published, number, name, told):
    env = env_over(published / "tau_bench")
    task = everything(env)[f"taubench-retail-tasks_test-{number}"]
    answers = [json.loads(m["content"]) for m in demonstrated(env, task)[2] if m["name"] == name]
    if name == "calculate":
        assert [str(answer) for answer in answers] == told
    elif name == "modify_pending_order_items":
        assert [round(answer["payment_history"][-1]["amount"], 2) for answer in answers] == told
    else:
        assert [answer["exchange_price_difference"] for answer in answers] == told
    assert {str(each).removeprefix("-") for each in told} <= set(task.answer["outputs"])
