"""Changes of valid examples: bytes, lines and JSON values, as damage and bad will would make them."""

import copy
import json

BYTES = [
    *(
        b"\x00",
        b"\xff",
        b"\xed\xa0\x80",
        b"\r",
        b"\n\n",
        b"\x1b[31m",
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
    ),
    *("\u2028".encode(), "\u202e".encode(), b"9" * 5000, b"-", b"1e999", b"NaN", b"[" * 3000, b"../../"),
    *(b"{{", b"}}", b"{%", b"%}", b"%99d", b"<", b">", b"</", b"</think>", b"'''"),
]
VALUES = [
    *(None, True, False, 0, -1, 1, 2**63, -(2**63) - 1, 10**400, 0.5, 1e308, float("nan"), float("-inf")),
    *("", "x", "x" * 3000, "\ud800", "\x1b[31m\u202e", "../../x", "/etc/passwd", "NaN", "nan", "1", "null"),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": [1]}}, ["x", 1, None], "(a|a)+$", "__class__"),
]


def deep(levels):
    """A list within lists."""
    value = []
    for _ in range(levels):
        value = [value]
    return value


def change_bytes(rng, data):
    """Bytes with one to four changes: bits, cuts, copies, insertions."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, end = (rng.randint(0, len(data)) for _ in range(2))
        end = min(max(at, end), at + rng.choice([1, 8, 200, len(data)]))
        kind = rng.randint(0, 4)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randint(0, 7)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:at] = data[at:end]
        else:
            data[at:at] = rng.choice(BYTES)
    return bytes(data)


def change_lines(rng, data):
    """Lines with one lost, doubled, exchanged, or cut."""
    lines = data.splitlines(keepends=True) or [b""]
    at, other = (rng.randint(0, len(lines) - 1) for _ in range(2))
    kind = rng.randint(0, 3)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = lines[at][: rng.randint(0, len(lines[at]))]
    return b"".join(lines)


def change_value(rng, value):
    """A JSON value with one to three parts replaced, removed or renamed."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        value = _change_part(rng, value)
    return value


def _change_part(rng, value):
    if isinstance(value, dict | list) and value and rng.random() < 0.8:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        kind = rng.randint(0, 9)
        if kind == 0:
            del value[key]
        elif kind == 1 and isinstance(value, dict):
            value[rng.choice(["", "x", "\ud800", "name", "step", str(key) * 2])] = value.pop(key)
        elif kind == 1:
            value.insert(key, value[key])
        else:
            value[key] = _change_part(rng, value[key])
        return value
    return deep(rng.choice([5, 100])) if rng.random() < 0.05 else copy.deepcopy(rng.choice(VALUES))


def change_json(rng, data):
    """The bytes of a JSON file with changed values; in every third case with changed bytes."""
    if rng.random() < 0.3:
        return change_bytes(rng, data)
    return json.dumps(change_value(rng, json.loads(data))).encode()


def change_jsonl(rng, data):
    """The bytes of a file of JSON lines with a changed line, or changed lines."""
    if rng.random() < 0.3:
        return rng.choice([change_bytes, change_lines])(rng, data)
    lines = data.splitlines(keepends=True)
    at = rng.randint(0, len(lines) - 1)
    lines[at] = json.dumps(change_value(rng, json.loads(lines[at]))).encode() + b"\n"
    return b"".join(lines)


def change_file(rng, path):
    """A file changed by its kind."""
    data = path.read_bytes()
    change = {".json": change_json, ".jsonl": change_jsonl}.get(path.suffix, change_bytes)
    if change is change_bytes and rng.random() < 0.2:
        change = change_lines
    path.write_bytes(change(rng, data))
