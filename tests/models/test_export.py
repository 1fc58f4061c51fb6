"""Exports: what transformers and peft load back computes what the trained policy computes."""

import json

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from truing.errors import ModelError
from truing.models.digest import digest
from truing.models.export import export, generation_config, merge_adapter
from truing.models.lora import add_lora, add_reference, trainable_parameters
from truing.types.sampling_params import SamplingParams

IDS = torch.tensor([[104, 101, 108, 108, 111, 257]])
CONTRACT = SamplingParams(
    temperature=0.7, top_k=20, top_p=0.9, min_p=0.05, max_new_tokens=64, stop_ids=(257,)
)


@torch.no_grad()
def logprobs(model):
    return model(input_ids=IDS).logits.log_softmax(-1)


@pytest.fixture
def policy(loaded):
    """A trained adapter, with a reference beside it that must not be exported."""
    policy = add_lora(loaded.model, rank=4, alpha=8.0, dropout=0.0, targets="all-linear", seed=3)
    add_reference(policy)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in trainable_parameters(policy).values():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return policy.eval()


def test_merged_weights_give_the_policys_logprobs_in_transformers(policy, loaded, tmp_path):
    before, base = digest(policy.state_dict()), loaded.tokenizer
    with policy.disable_adapter():
        untrained = logprobs(policy)
    export(policy, loaded, CONTRACT, tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert (logprobs(model) - logprobs(policy)).abs().max() < 1e-4
    assert (logprobs(model) - untrained).abs().max() > 0.1  # the adapter matters here
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert digest(policy.state_dict()) == before
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.chat_template == base.chat_template
    assert tokenizer("né<|im_end|>")["input_ids"] == base("né<|im_end|>")["input_ids"]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_the_adapter_alone_gives_the_policys_logprobs_in_peft(policy, loaded, tmp_path):
    export(policy, loaded, CONTRACT, tmp_path / "out", "adapter")
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    base = AutoModelForCausalLM.from_pretrained(config["base_model_name_or_path"])
    reloaded = PeftModel.from_pretrained(base, tmp_path / "out").eval()
    assert (logprobs(reloaded) - logprobs(policy)).abs().max() < 1e-6
    assert not (tmp_path / "out" / "reference").exists()
    assert (tmp_path / "out" / "chat_template.jinja").is_file()


def test_a_fully_trained_model_exports_itself(loaded, tmp_path):
    with torch.no_grad():
        loaded.model.get_input_embeddings().weight.add_(0.01)
    export(loaded.model, loaded, CONTRACT, tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert digest(model.state_dict()) == digest(loaded.model.state_dict())
    with pytest.raises(ModelError, match="no adapter"):
        export(loaded.model, loaded, CONTRACT, tmp_path / "adapter", "adapter")


def test_a_merged_copy_shares_nothing_with_the_policy(policy):
    before = logprobs(policy)
    with torch.no_grad():
        for parameter in merge_adapter(policy).parameters():
            parameter.zero_()
    assert torch.equal(logprobs(policy), before)


def test_a_folder_that_exists_is_left_alone(policy, loaded, tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(ModelError, match="exists"):
        export(policy, loaded, CONTRACT, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_full_disk_leaves_nothing_half_written(policy, loaded, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(loaded.tokenizer), "save_pretrained", full)
    with pytest.raises(ModelError, match="No space left"):
        export(policy, loaded, CONTRACT, tmp_path / "new" / "out")
    assert list((tmp_path / "new").iterdir()) == []


def test_the_contract_is_what_transformers_reads_back(policy, loaded, tmp_path):
    assert export(policy, loaded, CONTRACT, tmp_path / "out") == []
    read = GenerationConfig.from_pretrained(tmp_path / "out")
    assert read.do_sample is True
    assert (read.temperature, read.top_k, read.top_p, read.min_p) == (0.7, 20, 0.9, 0.05)
    assert (read.max_new_tokens, read.eos_token_id, read.pad_token_id) == (64, [257], 258)


def test_what_is_off_stays_off_in_transformers():
    # transformers' own default would be top_k = 50 wherever the file is silent.
    config, _ = generation_config(SamplingParams(stop_ids=(257,)), pad_id=258)
    assert config.top_k == 0
    assert config.repetition_penalty == 1.0


def test_a_greedy_contract_is_greedy(tmp_path):
    config, _ = generation_config(SamplingParams(temperature=0.0, stop_ids=(257,)), pad_id=258)
    config.save_pretrained(tmp_path)  # raises where greedy and sampling keys contradict each other
    assert GenerationConfig.from_pretrained(tmp_path).do_sample is False


def test_what_the_file_cannot_say_is_said():
    sampling_params = SamplingParams(
        presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=1.2, stop_ids=(1,)
    )
    _, warnings = generation_config(sampling_params, pad_id=0)
    assert [warning.split(" is ")[0] for warning in warnings] == [
        "presence_penalty 0.5",
        "frequency_penalty 0.25",
        "repetition_penalty 1.2",
    ]
