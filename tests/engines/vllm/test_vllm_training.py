"""Whole runs that sample with a vLLM server, undisturbed and with servers that are lost."""

import threading
import time

import pytest
from peft_adapters import save_adapter
from recorded import samples_of
from runs import assert_same_run, mini_table

import truing
from dev.faults.fake_vllm.threads import StartedThread, fake_vllm
from dev.faults.fault import patched
from dev.faults.planted import FAULTS
from truing.doctor.postmortem import diagnose_run
from truing.doctor.verdict import STRONG_VERDICTS, Verdict
from truing.envs import env_from_recipe
from truing.errors import EngineError, PublicationError
from truing.models.resolve import resolve_model
from truing.record import RunReader
from truing.trainer.session import open_session

pytestmark = pytest.mark.integration

FULL = {"engine": {"kind": "vllm", "timeout": 30.0}, "model": {"name": "tiny", "threads": 1, "device": "cpu"}}
LORA = {**FULL, "lora": {"rank": 4}}


def train(table, out, **options):
    return truing.train(table, out=out, on_event=lambda kind, facts: None, **options)


def events(run, kind):
    return [event.payload for event in RunReader(run).events() if event.kind == kind]


@pytest.fixture(scope="module")
def lora_run(tmp_path_factory):
    """The result of a run that nothing disturbs."""
    with fake_vllm():
        return train(mini_table(**LORA), tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.fixture
def undisturbed(lora_run):
    return lora_run.run


@pytest.mark.parametrize("weights", ["lora", "full"])
def test_a_run_samples_with_the_server_and_proves_each_version(lora_run, mini, tmp_path, weights):
    result = lora_run
    if weights == "full":
        with fake_vllm():
            result = train(mini(**FULL), tmp_path / "run")
    reader = RunReader(result.run)
    steps = [step for step in reader.steps() if step.stage == "grpo"]
    assert [step.facts["publication"]["version"] for step in steps] == [3, 4, 5]
    for step in steps:
        rows = samples_of(reader.find_table(step.stage, step.step))
        assert {turn.sampler_version for row in rows for turn in row.turns} == {
            step.facts["publication"]["version"]
        }
    claims = [each for found in diagnose_run(result.run).findings.values() for each in found]
    assert [each.code for each in claims if each.claim.verdict in STRONG_VERDICTS] == []
    assert set(result.evaluations) == {"base", "after_sft", "after_grpo"}


def test_a_run_that_starts_from_a_saved_adapter_samples_with_it(mini, tmp_path):
    save_adapter(resolve_model("tiny"), tmp_path / "adapter", use_rslora=True)
    changes = {"stages": ["grpo"], "kl": {"coef": 0.1}, "grpo": {"steps": 2}}
    with fake_vllm():
        train(mini(**FULL, **changes, lora={"adapter": str(tmp_path / "adapter")}), tmp_path / "run")
    first, second = RunReader(tmp_path / "run").steps()
    assert [step.facts["publication"]["version"] for step in (first, second)] == [0, 1]
    assert first.metrics["kl_all/k3"] == 0
    assert first.metrics["mismatch/max_abs"] < 1e-4


@pytest.fixture
def losses():
    """``losses(3, 40)``: started servers, that are lost while they sample their 3rd and their 40th answer."""

    def plan(*answers):
        started, counted = [], []

        class Recorded(StartedThread):
            def __init__(self, *arguments):
                super().__init__(*arguments)
                started.append(self)

        def losing(real):
            def generate(self, body):
                if "seed" in body["sampling_params"]:  # no row that is scored
                    counted.append(None)
                    if len(counted) in answers:
                        threading.Thread(target=started[-1].stop).start()
                        time.sleep(0.3)
                return real(self, body)

            return generate

        return patched("truing.engines.vllm.server:ServerProcess", lambda real: Recorded), patched(
            "dev.faults.fake_vllm.app:FakeServer.generate", losing
        )

    return plan


def test_a_lost_server_is_replaced_and_its_answers_are_sampled_under_the_same_keys(
    mini, tmp_path, losses, undisturbed
):
    servers, lost = losses(30, 31, 60)
    with servers, lost:
        train(mini(**LORA), tmp_path / "run")
    incidents = [each["text"] for each in events(tmp_path / "run", "incident") if each["what"] == "engine"]
    again = [text for text in incidents if "it runs again" in text]
    assert len(again) >= 2
    assert any("and weights of version" in text for text in again)  # not those lost before they were proven
    assert_same_run(tmp_path / "run", undisturbed, audits=False)


def test_more_losses_than_allowed_end_the_run_and_resume_goes_on(mini, tmp_path, losses, undisturbed):
    table = mini(**LORA | {"engine": FULL["engine"] | {"restarts": 0}})
    servers, lost = losses(50)
    with servers, lost, pytest.raises(EngineError, match=r"engine\.restarts") as error:
        train(table, tmp_path / "run")
    assert "is lost" in error.value.what
    assert events(tmp_path / "run", "stopped")[-1]["resumable"]
    with fake_vllm():
        train(table, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", undisturbed, audits=False)


def test_rollouts_end_at_the_context_of_the_engine(recipe, tiny, served):
    made = recipe(**FULL | {"engine": FULL["engine"] | {"servers": [served(context=200).url]}})
    session = open_session(made, env_from_recipe(made))
    try:
        assert session.policy.loaded.context_length > 200
        sampler = session.sampler
        assert sampler.episode_context(sampler.sampling_params).context_length == 200
    finally:
        session.close()


def test_a_publication_that_failed_is_a_finding_until_the_run_is_resumed(mini, tmp_path):
    fault = FAULTS["vllm-one-behind"]
    with fake_vllm(), fault.plant(), pytest.raises(PublicationError):
        train(mini(**LORA), tmp_path / "run")
    (finding,) = diagnose_run(tmp_path / "run").findings["SMP011"]
    assert (finding.claim.verdict, finding.stage, finding.step) == (Verdict.PROVEN, "sft", 3)
    assert fault.refusal in finding.claim.what
    with fake_vllm():
        train(mini(**LORA), tmp_path / "run", resume=True)
    assert "SMP011" not in diagnose_run(tmp_path / "run").findings
