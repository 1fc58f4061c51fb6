"""TRL's loss arguments as the stage, KL, entropy and gates of a recipe."""

from typing import Any

from truing.trl.arguments.batches import Batches
from truing.trl.arguments.config_base import TrlConfig
from truing.trl.arguments.problems import Problems
from truing.trl.arguments.recipe import NO_CLIPPING

Table = dict[str, Any]

SCALES = {True: "group", False: "none", "group": "group", "batch": "batch", "none": "none"}
"""Values of ``scale_rewards``."""

LOSSES = ("grpo", "dapo", "dr_grpo", "bnpo", "cispo")
"""Values of ``loss_type`` that Truing has under the same name."""


def grpo_tables(args: TrlConfig, batches: Batches, problems: Problems) -> Table:
    """Return ``[grpo]``, ``[kl]`` and ``[entropy]`` of a GRPO config."""
    stage = _stage(args, batches) | {"objective": _objective(args, problems)}
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    if args.loss_type == "cispo":
        stage["max_weight"] = high
        if high <= 1:
            problems.add(
                "epsilon_high",
                args.epsilon_high,
                "with cispo it is the largest weight of a token, and it must be above 1",
                "set epsilon_high=5.0",
            )
            stage["max_weight"] = None
    else:
        stage |= {"clip_low": args.epsilon, "clip_high": high}
    problems.check_choice("scale_rewards", args.scale_rewards, SCALES, "TRL has no such scale")
    stage["advantage_scale"] = SCALES.get(args.scale_rewards, "group")
    if args.entropy_coef and args.loss_type not in ("dapo", "cispo"):
        problems.add(
            "entropy_coef",
            args.entropy_coef,
            f"TRL averages the entropy over tokens, Truing as its objective {args.loss_type} does",
            'use loss_type="dapo"',
        )
    estimator = "k2" if args.use_bias_correction_kl else "k3"
    return {
        "stages": ["grpo"],
        "grpo": stage,
        "kl": {"coef": args.beta, "estimator": estimator},
        "entropy": {"coef": args.entropy_coef},
    }


def rloo_tables(args: TrlConfig, batches: Batches, problems: Problems) -> Table:
    """Return ``[rloo]`` and ``[kl]`` of an RLOO config."""
    if batches.optimizer_steps > 1:
        problems.add(
            "num_iterations",
            args.num_iterations,
            "Truing's RLOO makes one optimizer step per generation, and these arguments"
            f" make {batches.optimizer_steps}",
            "set num_iterations=1 and leave out steps_per_generation",
        )
    stage = _stage(args, batches) | {"minibatches": 1, "inner_epochs": 1}
    return {
        "stages": ["rloo"],
        "rloo": stage,
        "kl": {"coef": args.beta, "where": "reward", "estimator": "k1"},
        # TRL's loss is not divided by the length: gradients are as many times larger there
        "optimizer": {
            "max_grad_norm": (args.max_grad_norm or NO_CLIPPING) / args.max_completion_length,
            "eps": args.adam_epsilon / args.max_completion_length,
        },
    }


def gates(args: TrlConfig, batches: Batches) -> Table:
    """Return ``[gates]`` and ``[reference]``."""
    tables: Table = {"gates": {"truncated": "mask" if args.mask_truncated_completions else "keep"}}
    if args.sync_ref_model:
        keep = 1 - args.ref_model_mixup_alpha
        tables["reference"] = {"sync_every": batches.steps_of(args.ref_model_sync_steps), "keep": keep}
    return tables


def _stage(args: TrlConfig, batches: Batches) -> Table:
    """Return the keys that GRPO and RLOO share."""
    return {
        "steps": batches.steps,
        "learning_rate": args.learning_rate,
        "prompts_per_step": max(1, batches.rows // args.num_generations),
        "group_size": args.num_generations,
        "inner_epochs": batches.inner_epochs,
        "minibatches": batches.minibatches,
    }


def _objective(args: TrlConfig, problems: Problems) -> str:
    """Return the objective of a loss type and a ratio level."""
    if args.importance_sampling_level == "sequence":
        if args.loss_type != "grpo":
            problems.add(
                "importance_sampling_level",
                "sequence",
                f"Truing averages GSPO over sequences, and loss_type={args.loss_type!r} averages otherwise",
                'set loss_type="grpo"',
            )
        return "gspo"
    level = args.importance_sampling_level
    problems.check_choice("importance_sampling_level", level, ("token", "sequence"), "TRL has no such level")
    problems.check_choice("loss_type", args.loss_type, LOSSES, "Truing has no such objective")
    if args.loss_type == "bnpo" and args.gradient_accumulation_steps > 1:
        problems.add(
            "loss_type",
            "bnpo",
            "TRL averages each micro-batch by itself, so its gradient depends on the split",
            'use loss_type="dapo", or gradient_accumulation_steps=1',
        )
    return args.loss_type
