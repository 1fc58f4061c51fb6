"""What TRL's trainers share here: a recipe is built from the arguments, and ``truing.train`` runs it."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from transformers.trainer_utils import TrainOutput

from truing.analysis.script_arguments import write_arguments
from truing.analysis.train_result import TrainResult
from truing.api import train
from truing.config import Recipe, resolve, to_toml
from truing.distributed.ranks import join
from truing.envs.base import Env
from truing.errors import InvalidValueError, RecordError
from truing.learner.restore import restore_policy
from truing.models.load import available_device
from truing.models.new_tokens import new_tokens_note
from truing.terminal.progress import ProgressDisplay
from truing.trainer.events import EventCallback
from truing.trainer.go_back import go_back
from truing.trl.arguments.adapters import lora_table
from truing.trl.arguments.batches import Batches
from truing.trl.arguments.config_base import TrlConfig
from truing.trl.arguments.named_keys import UNTRAINED, carried_arguments, naming_arguments
from truing.trl.arguments.names import check_names
from truing.trl.arguments.problems import Problems
from truing.trl.arguments.processes import RANKS, Accelerator
from truing.trl.arguments.recipe import common_tables, logging_every, merged, model_table
from truing.trl.callback_arguments import Absent
from truing.trl.checkpoint_folders import checkpoint_of, remove_folders, write_folders
from truing.trl.models import (
    check_model,
    model_folder,
    model_name,
    model_type,
    new_tokens,
    raw_template,
    read_variables,
    source_of,
    tokenizer_of,
)
from truing.trl.run_directory import checkpoint_named, print_end, run_directory
from truing.trl.saving_methods import SavingMethods
from truing.trl.script_methods import ScriptMethods, check_overridden
from truing.trl.state import RunState, check_callbacks

T = TypeVar("T")

NOT_LOADED = Absent(
    "trainer.model is used before the training, which loads it",
    "pass the model as an object, or use trainer.model after train()",
)
"""Stands for the model that a name was passed of."""


class TrlTrainer(SavingMethods, ScriptMethods):
    """The methods of a trainer; a subclass sets its recipe and environment."""

    config_class: ClassVar[type[TrlConfig]]
    algorithm: ClassVar[str]
    absent: ClassVar[tuple[str, ...]] = ()
    """Arguments of ``__init__`` that TRL's trainer of this name does not have."""

    def __new__(cls, *_: Any, **arguments: Any) -> "TrlTrainer":
        """Make a trainer; raise one error for all unknown names."""
        check_overridden(cls, TrlTrainer)
        own = [*inspect.signature(cls.__init__).parameters][1:]
        check_names(cls.__name__, arguments, [name for name in own if name not in cls.absent])
        return super().__new__(cls)

    def __init__(self, model: Any, args: TrlConfig | None, refused: Mapping[str, tuple[Any, str]]) -> None:
        check_model(model)
        if not isinstance(args, self.config_class | None):
            raise InvalidValueError(
                f"args of {self.algorithm}Trainer is no {self.config_class.__name__} of truing.trl",
                got=f"{type(args).__module__}.{type(args).__name__}",
                expected=f"truing.trl.{self.config_class.__name__}",
                remedy=f"from truing.trl import {self.config_class.__name__}",
            )
        self.env: Env  # of the data set; a subclass sets it
        self.args = args or self.config_class(f"{model_name(model)}-{self.algorithm}")
        self.problems = Problems()
        self.problems.add_refused(self.args)
        for name, (value, reason) in refused.items():
            if value not in (None, (None, None), []):
                self.problems.add(name, value, reason, "leave it out")
        self.accelerator = Accelerator()
        self.hub_model_id: str | None = self.args.hub_model_id
        self.output = Path(str(self.args.output_dir))
        self.run: Path | None = None
        self.result: TrainResult | None = None
        self.model = NOT_LOADED if isinstance(model, str) else model
        self._given = model
        self._template: str | None = None

    def _finish(
        self,
        batches: Batches,
        tables: Mapping[str, Any],
        *,
        text: bool,
        processing_class: Any,
        callbacks: Iterable[Any] | None,
        peft_config: Any,
    ) -> None:
        """Build the recipe and the state; raise one error for all refused arguments.

        Args:
            batches: steps of the stage.
            tables: of the recipe, but those that all trainers share.
            text: whether prompts are text rather than messages.
            processing_class: the tokenizer, or None for the model's.
            callbacks: as passed by the user.
            peft_config: likewise.
        """
        args, model = self.args, self._given
        models = model_table(args, self.problems)
        name = model if isinstance(model, str) else str(self.output / "model")
        if peft_config is not None:
            tables = {**tables, "lora": lora_table(peft_config, model_type(model), self.problems)}
        common = common_tables(args, batches, RANKS, self.problems)
        self.problems.raise_if_any(f"{self.algorithm}Trainer")
        if isinstance(model, str) or processing_class is None:
            self.processing_class = tokenizer_of(source_of(model), models.get("revision"), processing_class)
        else:
            self.processing_class = processing_class
        if text:
            self._template = raw_template(self.processing_class)
        elif processing_class is not None and isinstance(model, str):
            self._template = processing_class.chat_template
        if self._template is not None:
            models["chat_template"] = str(self.output / "prompt.jinja")
        if "chat" in tables:
            variables = tables["chat"]["template_kwargs"]
            read = read_variables(self.processing_class, variables, self._template)
            tables = {**tables, "chat": {"template_kwargs": read}}
        tables = merged(tables, {"chat": {"content_tokens": "free"}})  # as TRL encodes them
        with self._naming_arguments():
            self.recipe: Recipe = resolve(merged({"model": {"name": name, **models}}, common, tables))
        self.batches = batches
        self.output.mkdir(parents=True, exist_ok=True)  # as transformers does: methods write there
        self._state = RunState(args, batches, logging_every(args, batches), check_callbacks(callbacks))
        self._state.processing_class = self.processing_class
        self._given_args, self._built = args.to_dict(), True
        self._state.call("on_init_end")

    def _continue(self, run: Path) -> None:
        """Prepare to continue a run; a subclass whose data hold what the run recorded reads it here."""

    @property
    def state(self) -> Any:
        """The trainer's state: ``global_step``, ``epoch``, ``log_history``."""
        return self._state.state

    def add_callback(self, callback: Any) -> None:
        """Add a callback."""
        self._state.callbacks = [*self._state.callbacks, *check_callbacks([callback])]

    def train(self, resume_from_checkpoint: str | bool | None = None) -> TrainOutput:
        """Train; ``True`` continues the newest run in ``output_dir``, a path that run, or its checkpoint."""
        resume = checkpoint_of(resume_from_checkpoint or self.args.resume_from_checkpoint)
        if self.result is not None and not resume:
            raise RecordError(
                "this trainer has trained: train() would start again from the first weights",
                expected="one training per trainer",
                remedy="save_model(), and a new trainer with that folder as its model",
            )
        self._check_args()
        if self.args.push_to_hub:  # a missing token is an error now
            self.hub_model_id = self._on_first("the repository on the hub", self._create_repository)
        self._write_inputs()
        self.run = run_directory(self.output, resume)
        if resume:
            self._continue(self.run)
        if self.recipe.lora and (new := new_tokens(self._given, self.processing_class)):
            # those of a script are made here, and take more notes
            self.env.notes = [*self.env.notes, new_tokens_note(new)]  # pyright: ignore[reportAttributeAccessIssue]
        if not resume:
            self._on_first("checkpoint folders", lambda: remove_folders(self.output))
        self._state.reset(self.run)
        if checkpoint := checkpoint_named(resume):
            step_back = partial(go_back, self.run, checkpoint.step, checkpoint.stage)
            self.accelerator.print(self._on_first("going back to a checkpoint", step_back))
        try:
            with self._naming_arguments(), self._events(self.run) as on_event:
                self.result = train(
                    self.recipe, env=self.env, out=self.run, resume=bool(resume), on_event=on_event
                )
            totals = self._state.end()
        finally:
            self._state.model = None  # its memory is free
        self._take_weights()
        if self.args.push_to_hub:
            self.push_to_hub()
        if self.accelerator.is_main_process:
            print_end(self.run)
        return TrainOutput(self.state.global_step, totals["train_loss"], totals)

    def _naming_arguments(self) -> AbstractContextManager[None]:
        """Return a context that names TRL's arguments in errors."""
        return naming_arguments(type(self.args).__name__, str(self.output / UNTRAINED))

    def _check_args(self) -> None:
        """Raise if the arguments have changed since the recipe was made of them."""
        now = self.args.to_dict()
        if changed := [name for name, value in now.items() if value != self._given_args[name]]:
            raise InvalidValueError(
                "args have changed since the trainer was made",
                got=", ".join(f"{name}={now[name]!r}" for name in changed),
                expected="the values that it was made with: the recipe has them",
                remedy="set them before the trainer is made",
            )

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Return the metrics of the newest weights on an evaluation data set; a subclass computes them."""
        raise NotImplementedError

    def _evaluated(self, metrics: dict[str, float]) -> dict[str, float]:
        """Log the metrics of an evaluation, and return them."""
        self._state.log_evaluation(metrics)
        return metrics

    def end(self) -> None:
        """End nothing: trackers and processes end with ``train()``."""

    def _on_first(self, what: str, compute: Callable[[], T]) -> T:
        """Return on all processes what ``compute`` returns on the first, once it has returned there."""
        ranks = join(available_device(self.recipe.model.device), self.recipe.trainer.timeout)
        return ranks.on_first(what, compute)

    def _write_inputs(self) -> None:
        """Write the model object and the template that the recipe names, before any process reads them."""
        self._on_first("writing the model", self._write_inputs_here)

    def _write_inputs_here(self) -> None:
        if self._template is not None:
            (self.output / "prompt.jinja").write_text(self._template, encoding="utf-8")
        (self.output / UNTRAINED).write_text(to_toml(self.recipe), encoding="utf-8")
        folder = self.output / "model"
        if not isinstance(self._given, str) and self.run is None:
            model_folder(self._given, self.processing_class, folder)

    @contextmanager
    def _events(self, run: Path) -> Iterator[EventCallback]:
        """Within the block the callback of the run's events, which also shows progress."""
        with nullcontext() if self.args.disable_tqdm else ProgressDisplay(run) as show:

            def on_event(kind: str, facts: Mapping[str, Any]) -> Any:
                if show is not None:
                    show(kind, facts)
                if kind == "learner":
                    config = type(self.args).__name__
                    arguments = carried_arguments(config, self.recipe, self.batches.optimizer_steps)
                    write_arguments(run, config, arguments)
                if kind == "checkpoint":  # before on_save, whose callbacks write there
                    write_folders(self.output, run, facts["name"], self.batches.optimizer_steps, self.state)
                return self._state.on_event(kind, facts)

            yield on_event

    def _take_weights(self) -> None:
        """Give the trained weights to the model object that was passed, or load the trained model."""
        run, best = self._trained(), self._best()
        if best is not None:
            self._state.state.best_model_checkpoint = str(run / "checkpoints" / best.name)
        policy = restore_policy(run, best and best.name).policy
        if isinstance(self._given, str) or self.recipe.lora:
            self.model = policy
        else:
            self._given.load_state_dict(policy.state_dict())
