import doctest
import json
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.envs.data import rows as source
from truing.envs.data.rows import DataSpec, parse_spec, read_rows
from truing.errors import DataError


@pytest.mark.parametrize(
    ("text", "name", "config", "split", "start", "stop"),
    [
        (
            "bdsaglam/musique-mini,answerable,train[:100]",
            "bdsaglam/musique-mini",
            "answerable",
            "train",
            0,
            100,
        ),
        ("owner/name, config , test ", "owner/name", "config", "test", 0, None),
        ("owner/name,config,train[10:20]", "owner/name", "config", "train", 10, 20),
        ("data.jsonl", "data.jsonl", None, None, 0, None),
        ("some/folder[:100]", "some/folder", None, None, 0, 100),
        ("../a b/c.json[5:]", "../a b/c.json", None, None, 5, None),
        ("folder[:]", "folder", None, None, 0, None),
        ("a,b.jsonl", "a,b.jsonl", None, None, 0, None),  # one comma: a file may be called so
        ("/a/b/c,d,e.jsonl", "/a/b/c,d,e.jsonl", None, None, 0, None),  # three levels are no hub id
        ("../a,b,c.jsonl", "../a,b,c.jsonl", None, None, 0, None),
    ],
)
def test_parse_spec_by_hand(text, name, config, split, start, stop):
    assert parse_spec(text) == DataSpec(text, name, config, split, start, stop)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("[:3]", "cannot be read"),
        ("a.jsonl[:3", "cannot be read"),
        ("a.jsonl[:3][:2]", "cannot be read"),
        ("a.jsonl[:3]x", "cannot be read"),
        ("a.jsonl[]", "slice that cannot be read"),
        ("a.jsonl[3]", "slice that cannot be read"),
        ("a.jsonl[:10%]", "slice that cannot be read"),
        ("a.jsonl[-3:]", "slice that cannot be read"),
        ("a.jsonl[1:9:2]", "slice that cannot be read"),
        ("a.jsonl[:1.5]", "slice that cannot be read"),
        ("owner/name,config,train[:x]", "slice that cannot be read"),
        ("a.jsonl[:0]", "empty slice"),
        ("a.jsonl[3:3]", "empty slice"),
        ("a.jsonl[4:3]", "empty slice"),
        ("owner/name,,train", "lacks its config or split"),
        ("owner/name,config,[:3]", "lacks its config or split"),
    ],
)
def test_parse_spec_refuses_what_it_cannot_read(text, message):
    with pytest.raises(DataError, match=message) as caught:
        parse_spec(text)
    assert repr(text) in str(caught.value)


def test_the_example_of_the_docstring_runs():
    assert doctest.testmod(source) == doctest.TestResults(failed=0, attempted=2)


@given(st.text(max_size=30))
def test_parse_spec_gives_a_spec_or_a_data_error(text):
    try:
        spec = parse_spec(text)
    except DataError:
        return
    assert spec.name
    assert (spec.config is None) == (spec.split is None)
    assert spec.stop is None or 0 <= spec.start < spec.stop


@pytest.fixture
def folder(tmp_path):
    """Two .jsonl files, of rows 0 to 2 and 3 to 4, beside a file that is no data."""
    (tmp_path / "b.jsonl").write_text(
        '{"n": 3}\n\n{"n": 4, "text": "line\\u2028separator é"}', encoding="utf-8"
    )
    (tmp_path / "a.jsonl").write_text('{"n": 0}\n{"n": 1}\n{"n": 2}\n', encoding="utf-8")
    (tmp_path / "info.json").write_text("not data")
    return tmp_path


def numbers(spec):
    return [row.values["n"] for row in read_rows(parse_spec(str(spec)))]


def test_a_folder_is_its_jsonl_files_in_order_of_name(folder):
    assert numbers(folder) == [0, 1, 2, 3, 4]
    assert numbers(f"{folder}[2:4]") == [2, 3]
    assert numbers(f"{folder}[:5]") == [0, 1, 2, 3, 4]
    assert [row.where.rpartition("/")[2] for row in read_rows(parse_spec(str(folder)))][3:] == [
        "b.jsonl:1",
        "b.jsonl:3",
    ]


def test_a_json_file_is_one_list(tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps([{"n": 7}, {"n": 8}]))
    assert numbers(tmp_path / "rows.json") == [7, 8]


@pytest.mark.parametrize("end", ["[:6]", "[5:]", "[0:100]"])
def test_a_slice_beyond_the_rows_is_an_error(folder, end):
    with pytest.raises(DataError, match=r"more rows than there are[\s\S]*5 rows at most"):
        numbers(f"{folder}{end}")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", b"", "is empty"),
        ("rows.jsonl", b'{"n": 1}\n{"n": ', r"rows.jsonl:2 is not JSON"),
        ("rows.jsonl", b'{"n": 1}\n[2]', r"rows.jsonl:2 is not a JSON object"),
        ("rows.jsonl", b'{"n": "\xff"}', "cannot be read"),
        ("rows.json", b'{"n": 1}', "is not a JSON list"),
        ("rows.json", b"[1]", r"rows.json\[0\] is not a JSON object"),
        ("rows.json", b"[]", "is empty"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_the_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        numbers(tmp_path / name)


def test_what_is_missing_is_an_error(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        numbers("a\0b.jsonl")
    with pytest.raises(DataError, match=r"cannot be read[\s\S]*No such file"):
        numbers(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match=r"holds no \.jsonl file"):
        numbers(tmp_path)


@pytest.fixture
def hub(monkeypatch):
    """Stands in for the package `datasets`: `hub.load` is what loading does."""
    module = types.ModuleType("datasets")
    module.load_dataset = lambda *args, **kwargs: module.load(*args, **kwargs)
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module


def test_a_hub_spec_asks_for_its_config_and_split_and_slices_the_rows(hub):
    asked = []

    def load(*args, **kwargs):
        asked.append((args, kwargs))
        return [{"n": i} for i in range(10)]

    hub.load = load
    rows = read_rows(parse_spec("owner/name,config,train[2:4]"))
    assert asked == [(("owner/name", "config"), {"split": "train"})]
    assert [(row.where, row.values) for row in rows] == [
        ("owner/name,config,train[2]", {"n": 2}),
        ("owner/name,config,train[3]", {"n": 3}),
    ]


@pytest.mark.parametrize("error", [ConnectionError("no route"), ValueError("no such config")])
def test_a_hub_that_fails_is_an_error_with_the_way_out(hub, error):
    def load(*args, **kwargs):
        raise error

    hub.load = load
    with pytest.raises(
        DataError, match=r"cannot be loaded[\s\S]*no (route|such config)[\s\S]*use the file"
    ) as caught:
        read_rows(parse_spec("owner/name,config,train"))
    assert caught.value.__cause__ is error


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install truing\[hub\], or use a local file"):
        read_rows(parse_spec("owner/name,config,train"))
