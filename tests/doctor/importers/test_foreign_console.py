"""What TRL and verl print: dicts of texts among progress bars, lines of ray, colours, several processes."""

import pytest
from foreign import healthy

from truing.doctor.importers.detect import read_log
from truing.doctor.importers.diagnose_log import diagnose_log
from truing.doctor.importers.steps import import_run
from truing.errors import RecordError


def printed(log, texts=True):
    """A log as transformers 5 prints it, or transformers 4."""
    facts = {name: f"{value:.4g}" if texts else round(value, 4) for name, value in log.items()}
    del facts["step"]
    return str(facts)


def bar(done, total):
    return f"\r {100 * done // total}%|{'█' * 3}       | {done}/{total} [00:10<01:00,  2.1s/it]"


def console(path, logs, texts=True, every=1, prefix=""):
    """A console with a bar before and after each dict, a bar of evaluation, and noise."""
    total = every * len(logs)
    parts = ["Loading checkpoint shards: 100%|███| 2/2 [00:01<00:00]\n", "WARNING: {'a': 'dict'} of nobody\n"]
    for i, log in enumerate(logs, 1):
        parts.append(bar(every * i, total) + "\r" + " " * 30 + "\r" + prefix + printed(log, texts) + "\n")
        if i % 10 == 0:
            parts.append(bar(4, 7) + "\n{'eval_loss': '0.5', 'eval_reward': '0.9', 'epoch': '0.5'}\n")
    parts.append("{'train_runtime': '12.3', 'train_loss': '0.01', 'epoch': '1'}\n")
    path.write_text("".join(parts), encoding="utf-8")
    return path


@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "\x1b[36m(main pid=7)\x1b[0m "])
def test_a_console_of_trl_is_read_with_the_steps_of_its_bar(tmp_path, texts, prefix):
    logs = healthy(0)
    run = import_run(read_log(console(tmp_path / "out.log", logs, texts, every=5, prefix=prefix)))
    assert (run.trainer, len(run.steps)) == ("trl", len(logs))
    assert [step.step + 1 for step in run.steps] == [5 * i for i in range(1, len(logs) + 1)]
    assert run.steps[0].setup.logged_every == 5
    assert run.steps[7].metrics["reward/mean"] == pytest.approx(logs[7]["reward"], abs=6e-5)
    assert run.notes == []


@pytest.mark.parametrize("prefix", ["", "\x1b[36m(main pid=7)\x1b[0m "])
@pytest.mark.parametrize("row", ["│ {} │ 1.00 │", "│ │ USER {} │ yes │ │", "┃ {} ┃"])
def test_an_answer_in_a_printed_table_is_no_record(tmp_path, prefix, row):
    answer = row.format("{'loss': 5, 'reward': 9}")
    lines = [f"{prefix}{text}" for log in healthy(0) for text in (printed(log), answer)]
    (tmp_path / "out.log").write_text("\n".join(lines), encoding="utf-8")
    run = import_run(read_log(tmp_path / "out.log"))
    assert len(run.steps) == len(healthy(0))
    assert max(step.metrics["reward/mean"] for step in run.steps) < 2


def test_without_a_bar_records_are_counted_and_that_is_said(tmp_path):
    (tmp_path / "out.txt").write_text("\n".join(printed(log) for log in healthy(0)))
    run = import_run(read_log(tmp_path / "out.txt"))
    assert [step.step for step in run.steps] == list(range(60))
    assert run.steps[0].setup.logged_every is None
    assert "the log tells no step" in run.notes[0]


@pytest.mark.parametrize("ended", [",\n ", ", "])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_dict_over_several_lines_is_one_record(tmp_path, ended, encoding):
    entries = [printed(log).replace(", ", ended) for log in healthy(0)]
    if ended == ", ":  # as a narrow window cuts it
        entries = ["\n".join(text[i : i + 70] for i in range(0, len(text), 70)) for text in entries]
    noise = "{'a': 'dict that never ends\nand goes on\n"
    (tmp_path / "out.stdout").write_text(noise + "\n".join(entries), encoding=encoding)
    run = import_run(read_log(tmp_path / "out.stdout"))
    assert [step.metrics["reward/mean"] for step in run.steps] == pytest.approx(
        [log["reward"] for log in healthy(0)], abs=6e-5
    )


def test_a_step_of_verl_right_behind_a_bar_is_read(tmp_path):
    bars = [
        f"Training Progress:  10%|█ | {i}/9 [00:10<01:00]step:{i} - critic/score/mean:0.5" for i in (1, 2)
    ]
    (tmp_path / "out.log").write_text("\n".join(bars))
    run = import_run(read_log(tmp_path / "out.log"))
    assert [dict(step.metrics) for step in run.steps] == [{"reward/mean": 0.5}] * 2


def test_what_several_processes_print_alike_is_one_record(tmp_path):
    lines = [f"[rank{rank}]: {printed(log)}" for log in healthy(0) for rank in (0, 1)]
    (tmp_path / "out.out").write_text("\n".join(lines))
    assert len(import_run(read_log(tmp_path / "out.out")).steps) == 60


def test_a_number_that_is_none_is_nan_and_reported(tmp_path):
    logs = healthy(0, grad_norm=lambda t, r: float("nan") if t > 0.9 else 1.0)
    results = diagnose_log(console(tmp_path / "out.log", logs)).diagnosis.results()
    assert {each.code for each in results if each.findings} == {"OPT015"}


def test_a_console_of_verl_is_read_behind_rays_prefix(tmp_path):
    line = (
        "\x1b[36m(TaskRunner pid=4711)\x1b[0m step:{} - global_seqlen/min:10"
        " - actor/pg_loss:np.float64(-0.01)"
        " - actor/grad_norm:{} - critic/score/mean:0.5 - response_length/clip_ratio:1e-02"
        " - actor/lr:1e-06 - val-core/openai/gsm8k/reward/mean@1:0.4"
    )
    text = "\n".join(["(pid=1) step: a word", *(line.format(i, v) for i, v in ((1, "0.9"), (2, "nan")))])
    (tmp_path / "verl.log").write_text(text + " [repeated 2x across cluster]\n")
    run = import_run(read_log(tmp_path / "verl.log"))
    assert (run.trainer, run.format, run.unknown) == ("verl", "verl's console", [])
    assert run.steps[0].metrics == {
        "grad/norm": 0.9,
        "reward/mean": 0.5,
        "truncated/share": 0.01,
        "lr": 1e-6,
    }
    assert run.steps[1].metrics["grad/norm"] != run.steps[1].metrics["grad/norm"]


def test_a_text_without_metrics_says_what_it_looked_for(tmp_path):
    (tmp_path / "a.log").write_text("hello\n{'a': 1}\n")
    with pytest.raises(RecordError, match=r"has no metrics(.|\n)*step:N - name:value"):
        read_log(tmp_path / "a.log")
