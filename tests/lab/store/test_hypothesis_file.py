"""Headers: what they say, and for each way to get one wrong a sentence that names file, fault and remedy."""

import pytest
from labs import HEADER

from truing.errors import LabError
from truing.lab.store.hypothesis_file import Criterion, Header, check_metric, read_hypothesis

NAME = "h07-short-prompts.md"
SETTLED = """
claim = "a bug"
why = "a hunch"
priority = "high"
smallest_effect = 0.1
[check]
rules = ["LEN"]
settles = true
"""


def written(folder, header=HEADER, name=NAME, title="# H07: Short prompts\n"):
    path = folder / name
    path.write_text(f"{title}\nSome words.\n\n```toml\n{header.strip()}\n```\n\nMore words.\n")
    return path


def refused(folder, header=HEADER, **facts):
    """Return the error of a header, which always names the file."""
    path = written(folder, header, **facts)
    with pytest.raises(LabError) as caught:
        read_hypothesis(path)
    assert str(path) in caught.value.what
    return str(caught.value)


def without(key):
    return "\n".join(line for line in HEADER.splitlines() if not line.startswith(f"{key} ="))


# What it says.


def test_a_hypothesis_is_read(tmp_path):
    hypothesis = read_hypothesis(written(tmp_path))
    assert (hypothesis.id, hypothesis.number, hypothesis.title) == ("h07", 7, "Short prompts")
    assert hypothesis.header.seeds == 10
    assert hypothesis.header.metric == "eval/reward"
    assert hypothesis.header.arms == {"changed": ("grpo.learning_rate=2e-3",)}
    assert hypothesis.header.confirm[0].above == 0
    assert hypothesis.header.refute[0].bound == 0.5


@pytest.mark.parametrize(
    ("title", "bare"),
    [
        ("# H07: Short prompts\n", "Short prompts"),
        ("# h07 – Short prompts\n", "Short prompts"),
        ("# Short prompts\n", "Short prompts"),
        ("Before.\n\n# H2O is wet\n", "H2O is wet"),
    ],
)
def test_the_title_less_its_number(tmp_path, title, bare):
    assert read_hypothesis(written(tmp_path, title=title)).title == bare


def test_what_a_check_settles_needs_no_arms(tmp_path):
    result = read_hypothesis(written(tmp_path, SETTLED)).header
    assert result.arms == {}
    assert result.check
    assert result.check.rules == ("LEN",)


def test_a_declared_header_comes_back_from_the_ledger(tmp_path):
    """A declaration keeps the header, to the last key."""
    header = read_hypothesis(written(tmp_path)).header
    assert Header.model_validate(header.model_dump(mode="json")) == header


def test_a_criterion_in_words():
    assert str(Criterion(metric="eval/reward", arm="a", above=0.25)) == "eval/reward, a − baseline > 0.25"
    assert str(Criterion(metric="eval/f1", below=-1)) == "eval/f1, arm − baseline < -1"
    assert Criterion(metric="eval/reward", above=0.0).bound == 0
    assert Criterion(metric="eval/reward", below=0.0).bound == 0


def test_metrics_of_runs_are_known():
    for name in ("eval/reward", "eval/f1", "reward/mean", "length/mean"):
        check_metric(name)
    for name in ("eval/", "eval/a/b", "reward", "rewards/mean"):
        with pytest.raises(ValueError, match="no run has"):
            check_metric(name)


# What can be wrong with the file.


@pytest.mark.parametrize(
    "name", ["short.md", "h7-short.md", "h07.md", "h07-Short.md", "x07-short.md", "h07-a.txt"]
)
def test_a_wrong_file_name(tmp_path, name):
    message = refused(tmp_path, name=name)
    assert f"got: {name}" in message
    assert "h07-short-prompts.md" in message


@pytest.mark.parametrize("name", ["h00-none.md", "h007-bond.md", "h0012-twice.md"])
def test_a_number_is_written_in_one_way(tmp_path, name):
    """h007 would be a second number 7, and h00 a seventh of six: more error than the lab has."""
    assert "a name such as" in refused(tmp_path, name=name)


def test_numbers_beyond_99(tmp_path):
    assert read_hypothesis(written(tmp_path, name="h123-more.md")).number == 123


def test_no_header(tmp_path):
    path = tmp_path / NAME
    path.write_text("# H07: Short\n\n```python\nx = 1\n```\n")
    with pytest.raises(LabError, match="lacks its header") as caught:
        read_hypothesis(path)
    assert str(path) in caught.value.what
    assert "truing lab new" in caught.value.remedy


def test_no_title(tmp_path):
    assert "lacks its title" in refused(tmp_path, title="No title.\n")


def test_a_comment_of_the_header_is_no_title(tmp_path):
    assert "lacks its title" in refused(tmp_path, HEADER + "\n# a comment\n", title="")


def test_a_title_below_the_header_is_none(tmp_path):
    path = tmp_path / NAME
    path.write_text(f"```toml\n{HEADER.strip()}\n```\n\n# H07: Late\n")
    with pytest.raises(LabError, match="lacks its title"):
        read_hypothesis(path)


def test_not_text(tmp_path):
    path = tmp_path / NAME
    path.write_bytes(b"# H07\n\xff\xfe")
    with pytest.raises(LabError, match="UTF-8") as caught:
        read_hypothesis(path)
    assert str(path) in caught.value.what


@pytest.mark.parametrize(
    ("line", "wrong"),
    [(1, "claim ="), (3, "priority = medium"), (2, 'why = "somebody'), (4, "smallest_effect = 0.5.1")],
)
def test_not_toml_and_where(tmp_path, line, wrong):
    """The header begins in line 6 of the file."""
    lines = HEADER.strip().splitlines()
    lines[line - 1] = wrong
    message = refused(tmp_path, "\n".join(lines))
    assert "is not TOML" in message
    assert f"(line {line + 5} of the file)" in message
    written_lines = (tmp_path / NAME).read_text().splitlines()
    assert written_lines[line + 4] == wrong


def test_a_key_twice(tmp_path):
    message = refused(tmp_path, HEADER.replace("seeds = 10", "seeds = 10\nseeds = 11"))
    assert "is not TOML" in message
    assert "line 11 of the file" in message


# What can be wrong with its keys.


@pytest.mark.parametrize("key", ["claim", "why", "priority", "smallest_effect"])
def test_a_missing_key(tmp_path, key):
    assert f"lacks '{key}'" in refused(tmp_path, without(key))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("clam", "claim"),
        ("smallest_efect", "smallest_effect"),
        ("seed", "seeds"),
        ("confirms", "confirm"),
        ("prerequisite", "prerequisites"),
    ],
)
def test_a_misspelt_key(tmp_path, wrong, right):
    """Reported as misspelled, even if the right key is then missing."""
    header = without(right) if f"{right} =" in HEADER else HEADER
    header = header.replace("\n[arms]", f'{wrong} = "x"\n\n[arms]')
    message = refused(tmp_path, header)
    assert f"unknown key '{wrong}'" in message
    assert f"did you mean {right!r}?" in message


def test_a_key_that_is_like_none(tmp_path):
    message = refused(tmp_path, HEADER.replace("\n[arms]", "zzz = 1\n\n[arms]"))
    assert "unknown key 'zzz'" in message
    assert "truing explain lab" in message


def test_a_misspelt_key_of_a_criterion(tmp_path):
    message = refused(tmp_path, HEADER.replace("above = 0.0", "abov = 0.0"))
    assert "unknown key 'confirm.0.abov'" in message


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("smallest_effect", "0.0", "greater than 0"),
        ("smallest_effect", "inf", "finite"),
        ("smallest_effect", "nan", "finite"),
        ("seeds", "1", "greater than or equal to 2"),
        ("seeds", "2.5", "integer"),
        ("priority", '"urgent"', "'high', 'medium' or 'low'"),
        ("claim", "3", "string"),
    ],
)
def test_an_invalid_value(tmp_path, key, value, told):
    message = refused(tmp_path, without(key).replace("\n[arms]", f"{key} = {value}\n\n[arms]"))
    assert f"{key} has an invalid value" in message
    assert told in message


# What can be wrong with what it asks for.


def test_an_unknown_metric(tmp_path):
    message = refused(tmp_path, HEADER.replace("eval/reward", "eval/reward/x", 1))
    assert "no run has the metric 'eval/reward/x'" in message
    assert "did you mean 'eval/reward'?" in message
    message = refused(tmp_path, 'metric = "rewrd/mean"\n' + HEADER.strip())
    assert "did you mean 'reward/mean'?" in message
    message = refused(tmp_path, 'metric = "1234"\n' + HEADER.strip())
    assert "truing explain metrics" in message


def test_an_unknown_rule(tmp_path):
    message = refused(tmp_path, SETTLED.replace('"LEN"', '"LEN", "XYZ001"'))
    assert "truing rules lists no XYZ001" in message


def test_an_unknown_measure(tmp_path):
    measures = 'measures = [{ metric = "length/meen", below = 1 }]'
    message = refused(tmp_path, SETTLED.replace('rules = ["LEN"]', measures))
    assert "did you mean 'length/mean'?" in message


def test_a_check_of_nothing(tmp_path):
    assert "asks for rules, or for measures" in refused(tmp_path, SETTLED.replace('rules = ["LEN"]\n', ""))


@pytest.mark.parametrize("bounds", ["", ", above = 0.0, below = 0.5"])
def test_no_bound_or_two(tmp_path, bounds):
    message = refused(tmp_path, HEADER.replace(", above = 0.0", bounds))
    assert "a criterion has one bound: above = …, or below = …" in message


@pytest.mark.parametrize("bound", ["nan", "inf", "-inf"])
def test_a_bound_that_is_no_number(tmp_path, bound):
    assert "finite" in refused(tmp_path, HEADER.replace("above = 0.0", f"above = {bound}"))


def test_a_criterion_about_an_arm_that_is_not_there(tmp_path):
    message = refused(tmp_path, HEADER.replace('arm = "changed", below', 'arm = "chnged", below'))
    assert "about arm 'chnged', and there is changed" in message
    message = refused(
        tmp_path,
        SETTLED.replace("[check]", 'confirm = [{ metric = "eval/reward", arm = "a", above = 0 }]\n[check]'),
    )
    assert "about arm 'a', and there is none" in message


def test_nothing_to_compare_and_nothing_that_settles(tmp_path):
    bare = HEADER[: HEADER.index("[arms]")]
    assert "nothing can be compared" in refused(tmp_path, bare)
    assert "nothing can be compared" in refused(
        tmp_path, SETTLED.replace("settles = true", "settles = false")
    )


@pytest.mark.parametrize("key", ["confirm", "refute"])
def test_arms_without_what_would_decide(tmp_path, key):
    assert "before anything is run: confirm, refute" in refused(tmp_path, without(key))


@pytest.mark.parametrize("name", ["baseline", '""'])
def test_an_arm_without_a_name_of_its_own(tmp_path, name):
    message = refused(tmp_path, HEADER + f'{name} = ["grpo.steps=3"]\n')
    assert "a name of its own, which is not baseline" in message


def test_an_arm_that_changes_nothing(tmp_path):
    message = refused(tmp_path, HEADER + "second = []\n")
    assert "arm second changes nothing" in message
    assert "kl.coef=0" in message


def test_a_prior_that_is_no_verdict(tmp_path):
    message = refused(tmp_path, HEADER + '[prior]\nverdict = "MAYBE"\nnote = "n"\nsource = "s"\n')
    assert "prior.verdict has an invalid value" in message
    assert "got: MAYBE" in message


def test_pairs_that_lie_nearer_to_0_than_what_matters_are_refused(tmp_path):
    message = refused(tmp_path, HEADER.replace("\n[arms]", 'within = { "eval/reward" = 0.5 }\n\n[arms]'))
    assert "no pair differs by more than 0.5, so smallest_effect is never detected" in message
    message = refused(tmp_path, HEADER.replace("\n[arms]", 'within = { "eval/rewrd/x" = 0.9 }\n\n[arms]'))
    assert "no run has the metric" in message
