"""Reward models: sequence classifiers that score a prompt with its completion, as TRL calls them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from truing.errors import ModelError
from truing.rewards.judge_models import DATE
from truing.trl.models import source_of
from truing.utils.render_template import render_template


class RewardModel:
    """A reward function by a model with one label."""

    def __init__(
        self,
        model: str | PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None,
        template_kwargs: Mapping[str, Any],
    ) -> None:
        self.template_kwargs = template_kwargs
        source = source_of(model)
        try:
            classifier = (
                AutoModelForSequenceClassification.from_pretrained(
                    model, num_labels=1, trust_remote_code=False, use_safetensors=True
                )
                if isinstance(model, str)
                else model
            )
            self.tokenizer = tokenizer or AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        except Exception as error:
            raise ModelError(
                f"the reward model {source!r} cannot be read",
                got=f"{type(error).__name__}: {error}",
                expected="a sequence classifier, and its tokenizer",
                remedy="a text in reward_funcs is the name of a model: pass a function itself; with a model"
                " object, pass reward_processing_classes= with its tokenizer",
            ) from error
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        # the score is that of the last token that is not this one
        classifier.config.get_text_config().pad_token_id = self.tokenizer.pad_token_id
        self.model = classifier.eval()
        self.__name__ = str(source).rstrip("/").split("/")[-1]

    @torch.inference_mode()
    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float]:
        """Return the model's score of each prompt with its completion."""
        texts = [self._text(*pair) for pair in zip(prompts, completions, strict=True)]
        inputs: Mapping[str, Any] = self.tokenizer(
            text=texts, return_tensors="pt", padding=True, padding_side="right", add_special_tokens=False
        )
        device = next(self.model.parameters()).device
        logits_B1 = self.model(**{key: value.to(device) for key, value in inputs.items()}).logits
        return logits_B1[:, 0].float().tolist()

    def _text(self, prompt: Any, completion: Any) -> str:
        if isinstance(prompt, str):
            return prompt + completion
        return render_template(self.tokenizer, [*prompt, *completion], DATE, **self.template_kwargs)
