"""The real clients of the three APIs, against the server: plain, streamed, asynchronous, refused."""

import asyncio

import anthropic
import openai
import pytest
from scripted_policy import CALLING, REASONED, make_reply

from truing.endpoint.calls import CallRefused

USER = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k1", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(server):
    with anthropic.Anthropic(base_url=server.url, api_key="k1", max_retries=0) as client:
        yield client


def test_chat_completions(client, server, policy):
    completion = client.chat.completions.create(
        model="m", messages=USER, temperature=0.5, extra_headers={"X-Run": "7"}
    )
    assert completion.choices[0].message.content == REASONED.content
    key, call = policy.calls[0]
    assert (key, call.messages, call.wanted) == (
        "k1",
        ({"role": "user", "content": "Hi"},),
        {"temperature": 0.5},
    )
    assert call.headers["x-run"] == "7"
    assert "authorization" not in call.headers
    server.wait_settled()
    assert policy.settled == [("k1", "r0", True)]


def test_chat_completions_streamed(client, server, policy):
    policy.say = lambda call: make_reply(CALLING)
    with client.chat.completions.stream(
        model="m", messages=USER, stream_options={"include_usage": True}
    ) as stream:
        completion = stream.get_final_completion()
    message = completion.choices[0].message
    assert (message.content, completion.usage.total_tokens) == ("I look.", 12)
    assert [(each.id, each.function.name, each.function.arguments) for each in message.tool_calls] == [
        ("r1-0", "look", '{"town": "Köln", "n": 1}'),
        ("own", "look", "{}"),
    ]
    server.wait_settled()
    assert policy.settled == [("k1", "r1", True)]


def test_responses_continue_the_one_that_is_named(client, server, policy):
    policy.say = lambda call: make_reply(CALLING, id=f"r{len(policy.calls)}")
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    first = client.responses.create(model="m", input="Hi", instructions="Be brief.", tools=[tool])
    outputs = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "7"}
        for item in first.output
        if item.type == "function_call"
    ]
    again = client.responses.create(
        model="m", input=outputs, tools=[tool], instructions="Be long.", previous_response_id=first.id
    )
    assert again.previous_response_id == first.id
    last = client.responses.create(model="m", input="And?", previous_response_id=again.id)
    assert last.output_text == "I look."
    asked = [[message["content"] for message in call.messages] for _, call in policy.calls]
    assert asked == [
        ["Be brief.", "Hi"],
        ["Be long.", "Hi", "I look.", "7", "7"],
        ["Hi", "I look.", "7", "7", "I look.", "And?"],
    ]
    results = policy.calls[1][1].messages[3:]
    assert [(each["name"], each["tool_call_id"]) for each in results] == [("look", "r1-0"), ("look", "own")]


def test_responses(client, policy):
    response = client.responses.create(model="m", input="Hi", instructions="Be brief.")
    assert response.output_text == REASONED.content
    assert [each["role"] for each in policy.call.messages] == ["system", "user"]


def test_responses_streamed(client, policy):
    policy.say = lambda call: make_reply(CALLING)
    with client.responses.stream(model="m", input="Hi") as stream:
        types = [event.type for event in stream]
        response = stream.get_final_response()
    assert types[-1] == "response.completed"
    assert response.output_text == "I look."
    assert [each.arguments for each in response.output[1:]] == ['{"town": "Köln", "n": 1}', "{}"]
    assert response.usage.output_tokens == 5


def test_messages(claude, policy):
    message = claude.messages.create(model="m", max_tokens=9, messages=USER, system="Be brief.")
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert policy.calls[0][0] == "k1"
    assert policy.call.wanted == {"max_tokens": 9}
    assert "x-api-key" not in policy.call.headers


def test_messages_streamed(claude, policy):
    policy.say = lambda call: make_reply(CALLING)
    with claude.messages.stream(model="m", max_tokens=9, messages=USER) as stream:
        assert "".join(stream.text_stream) == "I look."
        message = stream.get_final_message()
    assert message.stop_reason == "tool_use"
    assert [each.input for each in message.content[1:]] == [{"town": "Köln", "n": 1}, {}]
    assert (message.usage.input_tokens, message.usage.output_tokens) == (7, 5)
    with claude.messages.stream(model="m", max_tokens=9, messages=USER) as stream:
        policy.say = lambda call: make_reply(REASONED)
        stream.until_done()


def test_a_token_is_a_key_of_messages_too(server, policy):
    with anthropic.Anthropic(base_url=server.url, auth_token="k2", max_retries=0) as claude:
        claude.messages.create(model="m", max_tokens=9, messages=USER)
    assert policy.calls[0][0] == "k2"


def test_asynchronous_clients(server, policy):
    async def ask():
        async with (
            openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k1", max_retries=0) as client,
            anthropic.AsyncAnthropic(base_url=server.url, api_key="k2", max_retries=0) as claude,
        ):
            completion = await client.chat.completions.create(model="m", messages=USER)
            response = await client.responses.create(model="m", input="Hi")
            chunks = [
                each
                async for each in await client.chat.completions.create(model="m", messages=USER, stream=True)
            ]
            async with claude.messages.stream(model="m", max_tokens=9, messages=USER) as stream:
                message = await stream.get_final_message()
            return (
                completion.choices[0].message.content,
                response.output_text,
                chunks,
                message.content[-1].text,
            )

    said, written, chunks, text = asyncio.run(ask())
    assert said == written == text == REASONED.content
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == REASONED.content
    assert [key for key, _ in policy.calls] == ["k1", "k1", "k1", "k2"]


STATUSES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "InternalServerError",
}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_raises_the_clients_error_with_its_text(client, claude, policy, status, stream):
    policy.say = lambda call: CallRefused(status, "no rollout has this key")
    for module, ask in [
        (openai, lambda: client.chat.completions.create(model="m", messages=USER, stream=stream)),
        (openai, lambda: client.responses.create(model="m", input="Hi", stream=stream)),
        (anthropic, lambda: claude.messages.create(model="m", max_tokens=9, messages=USER, stream=stream)),
    ]:
        name = STATUSES[status]
        if module is anthropic and status == 503:
            name = "ServiceUnavailableError"
        with pytest.raises(getattr(module, name), match="no rollout has this key"):
            ask()
    assert policy.settled == []


def test_a_client_that_tries_again_says_so(server, policy):
    policy.say = lambda call: make_reply() if call.retry else CallRefused(429, "later")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k1", max_retries=1) as client:
        client.chat.completions.create(model="m", messages=USER)
    assert [call.retry for _, call in policy.calls] == [False, True]


def test_the_list_of_models(client):
    assert [model.id for model in client.models.list()] == ["policy"]


def test_another_path_names_those_that_there_are(client, claude):
    with pytest.raises(
        openai.NotFoundError, match=r"no POST /v1/embeddings; it has POST /v1/chat/completions, POST"
    ):
        client.embeddings.create(model="m", input="x")
    with pytest.raises(anthropic.NotFoundError, match="no POST /v1/messages/count_tokens"):
        claude.messages.count_tokens(model="m", messages=USER)
    client.base_url = claude.base_url
    with pytest.raises(
        openai.NotFoundError, match="no POST /chat/completions; it has POST /v1/chat/completions"
    ):
        client.chat.completions.create(model="m", messages=USER)
