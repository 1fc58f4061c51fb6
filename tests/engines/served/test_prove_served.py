"""Which weights a server has is told from outside, by its log-probabilities alone."""

import copy
import json
import threading
import time
from contextlib import contextmanager

import pytest
import torch
import uvicorn
from command import truing
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from truing.engines.served.candidates import load_candidate
from truing.engines.served.prove import prove
from truing.engines.served.verdict import share_of
from truing.errors import EngineError

MOVED = 0.03
"""Of a weight's deviation: how far training moved it."""


class Server:
    """A server that scores rows with a model, in one of three forms."""

    def __init__(self, model, tokenizer, form="prompt_logprobs"):
        self.model, self.tokenizer, self.form = model, tokenizer, form
        self.temperature, self.rounding, self.prefix = 1.0, torch.float32, ""

    @torch.no_grad()
    def scores(self, row):
        ids = torch.tensor(row)
        logits = self.model(input_ids=ids[None]).logits[0, :-1].float() / self.temperature
        found = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        return [None, *found.to(self.rounding).float().tolist()]

    async def completions(self, request):
        body = await request.json()
        if self.form == "prompt_logprobs" and "prompt_logprobs" in body:
            choices = [
                {
                    "index": i,
                    "prompt_logprobs": [
                        score and {str(token): {"logprob": score}}
                        for token, score in zip(row, self.scores(row), strict=True)
                    ],
                }
                for i, row in enumerate(body["prompt"])
            ]
            return JSONResponse({"choices": choices[::-1]})
        if self.form == "echo" and body.get("echo"):
            choices = [
                {"index": i, "logprobs": {"token_logprobs": [*self.scores(row), -1.0]}}
                for i, row in enumerate(body["prompt"])
            ]
            return JSONResponse({"choices": choices})
        return JSONResponse({"error": "no such option"}, 400)

    async def generate(self, request):
        if self.form != "input_token_logprobs":
            return JSONResponse({"detail": "Not Found"}, 404)
        rows = (await request.json())["input_ids"]
        answers = [
            {
                "meta_info": {
                    "input_token_logprobs": [[s, t, None] for s, t in zip(self.scores(r), r, strict=True)]
                }
            }
            for r in rows
        ]
        return JSONResponse(answers)

    async def chat(self, request):
        messages = (await request.json())["messages"]
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        ids = self.tokenizer.encode(self.prefix + text, add_special_tokens=False)
        return JSONResponse({"prompt_token_ids": ids})

    async def models(self, request):
        return JSONResponse({"data": [{"id": "policy"}]})

    @contextmanager
    def running(self):
        routes = [
            Route("/v1/models", self.models),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/generate", self.generate, methods=["POST"]),
        ]
        config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join()


def moved(model, seed, by=MOVED):
    """Return a model whose weights training moved, in a direction of its own."""
    changed, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    for parameter in changed.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data.add_(by * parameter.data.std().nan_to_num() * noise)
    return changed


def between(one, other, share):
    """Return the weights at a share of the way from one model to another."""
    made = copy.deepcopy(one)
    for parameter, a, b in zip(made.parameters(), one.parameters(), other.parameters(), strict=True):
        parameter.data.copy_(a.data + share * (b.data - a.data))
    return made


@pytest.fixture(scope="module")
def versions(_tiny, tmp_path_factory):
    """The base, the version before, and the newest one: models, and their folders."""
    base = _tiny.model
    before = moved(base, 1)
    models = {"base": base, "before": before, "newest": moved(before, 2)}
    folders = {}
    for name, model in models.items():
        folders[name] = str(tmp_path_factory.mktemp("weights") / name)
        model.save_pretrained(folders[name])
        _tiny.tokenizer.save_pretrained(folders[name])
    return models, folders


def proof(server, folders, **others):
    others = others or {"base": folders["base"], "before": folders["before"]}
    with server.running() as url:
        return prove(url, folders["newest"], **others)


@pytest.fixture
def server(versions, tiny):
    return Server(versions[0]["newest"], tiny.tokenizer)


@pytest.mark.parametrize("form", ["prompt_logprobs", "input_token_logprobs", "echo"])
def test_the_right_weights_are_told_in_each_form(form, server, versions):
    server.form = form
    found = proof(server, versions[1])
    assert (found.said, found.form, found.wrong) == ("served", form, False)
    assert all(share.of_change == pytest.approx(1, abs=1e-3) for share in found.seen.shares.values())
    assert "the same" in found.template
    assert (found.depth, "its workers cannot be called" in found.not_entered) == ("outside", True)


def test_weights_that_were_not_sent_are_told(server, versions):
    for name, said in (("base", "the base fits"), ("before", "the version before fits")):
        server.model = versions[0][name]
        found = proof(server, versions[1])
        assert (found.said, found.wrong) == ("other", True)
        assert said in found.text


def test_rounding_of_an_engine_hides_neither(server, versions):
    server.rounding = torch.bfloat16
    assert proof(server, versions[1]).said == "served"
    server.model = versions[0]["before"]
    assert proof(server, versions[1]).said == "other"


def test_half_of_a_change_is_told(server, versions):
    models, folders = versions
    server.model = between(models["base"], models["newest"], 0.5)
    found = proof(server, folders, base=folders["base"])
    assert found.said == "scaled"
    assert found.seen.shares["the base"].of_change == pytest.approx(0.5, abs=0.05)


def test_weights_of_another_training_are_told(server, versions):
    server.model = moved(versions[0]["base"], 3, by=0.5)
    found = proof(server, versions[1])
    assert (found.said, found.wrong) == ("none", True)


def test_a_temperature_in_its_log_probabilities_is_told(server, versions):
    server.temperature = 0.7
    found = proof(server, versions[1])
    assert found.said == "temperature"
    assert "a temperature of 0.7" in found.text


def test_a_change_below_rounding_cannot_be_told(server, versions, tmp_path, tiny):
    models, folders = versions
    nearly = moved(models["newest"], 4, by=1e-4)
    nearly.save_pretrained(tmp_path)
    tiny.tokenizer.save_pretrained(tmp_path)
    server.rounding = torch.bfloat16
    found = proof(server, folders, before=str(tmp_path))
    assert (found.said, found.wrong) == ("cannot tell", False)
    share = found.seen.shares["the version before"]
    assert share.change < share.shown
    assert "tokens would tell" in found.text


def test_another_template_is_told(server, versions):
    server.prefix = "x"
    found = proof(server, versions[1])
    assert "other ids than by the folder's template from token 1 on" in found.template
    assert found.wrong


def test_an_adapter_is_a_candidate(versions, tiny, tmp_path):
    from peft import LoraConfig, get_peft_model

    _, folders = versions
    adapted = get_peft_model(tiny.model, LoraConfig(target_modules="all-linear", r=4))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            parameter.data.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    adapted.peft_config["default"].base_model_name_or_path = folders["base"]
    adapted.save_pretrained(tmp_path)
    with Server(load_candidate(folders["base"])[1], tiny.tokenizer).running() as url:
        outcome = truing("prove", url, "--weights", f"{folders['base']}+{tmp_path}")
    assert outcome.code == 1
    assert "WRONG: it does not serve the expected weights: the base fits" in outcome.out


def test_the_command_says_what_it_stands_on(server, versions):
    _, folders = versions
    with server.running() as url:
        outcome = truing("prove", url, "--weights", folders["newest"], "--base", folders["base"])
        alone = truing("prove", url, "--weights", folders["newest"])
        facts = json.loads(truing("prove", url, "--weights", folders["newest"], "--json").out)
    assert outcome.code == 0
    assert "it serves the expected weights" in outcome.out
    assert "from the base (0) to the expected weights (1) the server is at 1.000" in outcome.out
    assert "not looked at: whether it serves other weights" in alone.out
    assert (facts["said"], facts["model"]) == ("served", "policy")


def test_a_server_without_log_probabilities_is_refused(server, versions):
    server.form = "none"
    with pytest.raises(EngineError, match="gives no log-probabilities of given tokens"):
        proof(server, versions[1])
    outcome = truing("prove", "http://127.0.0.1:9", "--weights", versions[1]["base"])
    assert outcome.code == 2
    assert "no server answers" in outcome.err


def test_the_error_of_a_share_is_that_of_its_noise():
    """Over repetitions the share deviates by its standard error, also where noise grows with the change."""
    generator = torch.Generator().manual_seed(0)
    change = torch.randn(400, generator=generator, dtype=torch.float64)
    shares, errors = [], []
    for _ in range(200):
        noise = change.abs() * torch.randn(400, generator=generator, dtype=torch.float64)
        share = share_of(change + noise, change, torch.zeros(400, dtype=torch.float64))
        shares.append(share.of_change)
        errors.append(share.error)
    assert torch.tensor(shares).std() == pytest.approx(sum(errors) / 200, rel=0.15)
