"""A server that answers by a script in the APIs of OpenAI and Anthropic, without Truing's endpoint."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

NUMBERS = count()
"""Of calls: frameworks take no id twice."""


@contextmanager
def serving(turns):
    """Answer the n-th request with the n-th turn; yield the server's address."""
    left = iter(turns)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            write = APIS[self.path]
            self.answer(*write(next(left), body.get("stream", False)))

        def answer(self, content, kind):
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *of):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def whole(body):
    return json.dumps(body).encode(), "application/json"


def events(bodies, *, named):
    names = [f"event: {each['type']}\n" if named else "" for each in bodies]
    lines = [f"{name}data: {json.dumps(each)}\n\n" for name, each in zip(names, bodies, strict=True)]
    return "".join([*lines, *([] if named else ["data: [DONE]\n\n"])]).encode(), "text/event-stream"


def text_of(turn):
    return turn.content.rpartition("</think>")[2].strip()


def chat_completion(turn, stream):
    head = {"id": "chatcmpl-1", "created": 1, "model": "gpt-5"}
    calls = [
        {
            "index": i,
            "id": f"call_{next(NUMBERS)}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for i, call in enumerate(turn.calls)
    ]
    said = {"role": "assistant", "content": text_of(turn) or None} | ({"tool_calls": calls} if calls else {})
    end = "tool_calls" if calls else "stop"
    if stream:
        choices = [
            {"index": 0, "delta": said, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": end},
        ]
        chunks = [{**head, "object": "chat.completion.chunk", "choices": [choice]} for choice in choices]
        return events(chunks, named=False)
    choice = {"index": 0, "message": said, "finish_reason": end}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return whole({**head, "object": "chat.completion", "choices": [choice], "usage": usage})


def response(turn, stream):
    assert not stream
    part = {"type": "output_text", "text": text_of(turn), "annotations": []}
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    calls = [
        {
            "id": f"fc_{next(NUMBERS)}",
            "type": "function_call",
            "call_id": f"call_{next(NUMBERS)}",
            "name": call.name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }
        for call in turn.calls
    ]
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    }
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5", "status": "completed"}
    options = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return whole({**head, **options, "output": [said] * bool(text_of(turn)) + calls, "usage": usage})


def message(turn, stream):
    text = [{"type": "text", "text": text_of(turn)}] * bool(text_of(turn))
    calls = [
        {"type": "tool_use", "id": f"toolu_{next(NUMBERS)}", "name": call.name, "input": dict(call.arguments)}
        for call in turn.calls
    ]
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
    end, usage = ("tool_use" if calls else "end_turn"), {"input_tokens": 1, "output_tokens": 1}
    if not stream:
        return whole({**head, "content": text + calls, "stop_reason": end, "usage": usage})
    started = {**head, "content": [], "stop_reason": None, "usage": usage}
    bodies = [{"type": "message_start", "message": started}]
    for i, block in enumerate(text + calls):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            arguments = json.dumps(block["input"])
            empty, delta = (
                {**block, "input": {}},
                {"type": "input_json_delta", "partial_json": arguments},
            )
        bodies += [
            {"type": "content_block_start", "index": i, "content_block": empty},
            {"type": "content_block_delta", "index": i, "delta": delta},
            {"type": "content_block_stop", "index": i},
        ]
    bodies.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": end, "stop_sequence": None},
            "usage": {"output_tokens": 1},
        }
    )
    return events([*bodies, {"type": "message_stop"}], named=True)


APIS = {"/v1/chat/completions": chat_completion, "/v1/responses": response, "/v1/messages": message}
