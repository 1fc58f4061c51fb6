"""What a client puts together from the bytes of an answer, by other code than that which writes them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from truing.types.model_call import Said
from truing.utils.parse import parse_json


def said_in(path: str, body: bytes) -> Said:
    """Return what an answer of an API says, by the path of the API; the answer may be a stream."""
    of_body, of_events = READERS[path]
    try:
        if not body.startswith((b"data:", b"event:")):
            return of_body(parse_json(body))
        lines = (line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: "))
        return of_events(parse_json(line) for line in lines if line != b"[DONE]")
    except (KeyError, IndexError, TypeError, ValueError):
        return Said(readable=False)


def _chat_body(body: Mapping[str, Any]) -> Said:
    (choice,) = body["choices"]
    return _chat_events([{"choices": [{**choice, "delta": choice["message"]}]}])


def _chat_events(events: Iterable[Mapping[str, Any]]) -> Said:
    said, calls = Said(), dict[int, list[str]]()
    for choice in (choice for event in events for choice in event["choices"]):
        delta = choice["delta"]
        said.cut |= choice["finish_reason"] == "length"
        said.reasoning += delta.get("reasoning_content") or ""
        said.content += delta.get("content") or ""
        for i, call in enumerate(delta.get("tool_calls") or ()):
            name, arguments = calls.setdefault(call.get("index", i), ["", ""])
            function = call["function"]
            calls[call.get("index", i)] = [name + function.get("name", ""), arguments + function["arguments"]]
    said.calls = [(name, parse_json(arguments)) for name, arguments in calls.values()]
    return said


def _anthropic_body(body: Mapping[str, Any]) -> Said:
    said = Said(cut=body["stop_reason"] == "max_tokens")
    for block in body["content"]:
        said.reasoning += block.get("thinking", "")
        said.content += block.get("text", "")
        said.calls += [(block["name"], block["input"])] if block["type"] == "tool_use" else []
    return said


def _anthropic_events(events: Iterable[Mapping[str, Any]]) -> Said:
    blocks, inputs, end = dict[int, dict[str, Any]](), dict[int, str](), {}
    for event in events:
        if event["type"] == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"])
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            for name in {"text", "thinking"} & {*delta}:
                block[name] += delta[name]
            inputs[event["index"]] = inputs.get(event["index"], "") + delta.get("partial_json", "")
        elif event["type"] == "message_delta":
            end = event["delta"]
    for index, block in blocks.items():
        if block["type"] == "tool_use":
            block["input"] = parse_json(inputs[index])
    return _anthropic_body({**end, "content": [*blocks.values()]})


def _responses_body(body: Mapping[str, Any]) -> Said:
    said = Said(cut=body["status"] == "incomplete")
    for item in body["output"]:
        for part in item.get("content", ()):
            said.reasoning += part["text"] if part["type"] == "reasoning_text" else ""
            said.content += part["text"] if part["type"] == "output_text" else ""
        if item["type"] == "function_call":
            said.calls.append((item["name"], parse_json(item["arguments"])))
    return said


def _responses_events(events: Iterable[Mapping[str, Any]]) -> Said:
    """Return what the parts of a stream say.

    Raises:
        ValueError: Its items, or its last event, which has the whole answer, say something else.
    """
    said, names, arguments, done, whole = Said(), dict[int, str](), dict[int, str](), list[Any](), {}
    for event in events:
        kind, index = event["type"].removeprefix("response."), event.get("output_index", 0)
        if kind == "output_item.added" and event["item"]["type"] == "function_call":
            names[index] = event["item"]["name"]
        elif kind == "function_call_arguments.delta":
            arguments[index] = arguments.get(index, "") + event["delta"]
        elif kind == "output_text.delta":
            said.content += event["delta"]
        elif kind == "reasoning_text.delta":
            said.reasoning += event["delta"]
        elif kind == "output_item.done":
            done.append(event["item"])
        elif kind in ("completed", "incomplete"):
            whole, said.cut = event["response"], kind == "incomplete"
    said.calls = [(name, parse_json(arguments[index])) for index, name in names.items()]
    if not said == _responses_body(whole) == _responses_body({**whole, "output": done}):
        raise ValueError("the parts of the stream are not its whole")
    return said


Reader = tuple[Callable[[Mapping[str, Any]], Said], Callable[[Iterable[Mapping[str, Any]]], Said]]

READERS: Mapping[str, Reader] = {
    "/v1/chat/completions": (_chat_body, _chat_events),
    "/v1/responses": (_responses_body, _responses_events),
    "/v1/messages": (_anthropic_body, _anthropic_events),
}
"""By path: what reads the body of an answer, and what reads the events of a stream."""
