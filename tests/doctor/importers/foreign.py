"""Runs of other trainers as small files: healthy ones, and ones with a fault that a scalar may show."""

import json
import math
import random
import zipfile

STEPS = 60


def _noisy(rng, value, share=0.05):
    return value * (1 + share * rng.gauss(0, 1))


def healthy(seed, **series):
    """Logs of TRL's GRPO, a dict per step; ``series`` are functions of (share of the run, rng)."""
    rng = random.Random(seed)
    usual = {
        "loss": lambda t, r: r.gauss(0, 0.02),
        "grad_norm": lambda t, r: _noisy(r, 0.8, 0.3),
        "learning_rate": lambda t, r: 1e-6 * (1 - t),
        "reward": lambda t, r: 0.3 + 0.3 * t + r.gauss(0, 0.04),
        "frac_reward_zero_std": lambda t, r: min(1.0, max(0.0, 0.3 + r.gauss(0, 0.1))),
        "kl": lambda t, r: abs(_noisy(r, 0.001 + 0.05 * t, 0.2)),
        "entropy": lambda t, r: _noisy(r, 1.2 - 0.4 * t),
        "completions/mean_length": lambda t, r: _noisy(r, 180),
        "completions/clipped_ratio": lambda t, r: max(0.0, r.gauss(0.03, 0.02)),
        "clip_ratio/region_mean": lambda t, r: max(0.0, r.gauss(0.01, 0.005)),
    }
    shown = {name: make for name, make in (usual | series).items() if make}
    return [
        {name: make(step / STEPS, rng) for name, make in shown.items()} | {"step": step + 1}
        for step in range(STEPS)
    ]


def flat(t, rng):
    return 0.3 + rng.gauss(0, 0.04)


def falling(first, last):
    """Exponentially, over the first two thirds."""
    return lambda t, rng: _noisy(rng, max(last, first * math.exp(1.5 * t * math.log(last / first))))


def constant(value):
    return lambda t, rng: value


HEALTHY = {
    "H1 healthy": {},
    "H2 entropy of an instruct model": {"entropy": lambda t, r: _noisy(r, 0.35 - 0.1 * t)},
    "H3 on-policy without KL": {"kl": None, "clip_ratio/region_mean": constant(0.0)},
    "H4 fast learner": {"reward": lambda t, r: 0.9 - 0.8 * math.exp(-6 * t) + r.gauss(0, 0.02)},
    "H5 answers grow": {"completions/mean_length": lambda t, r: _noisy(r, 180 + 1800 * t)},
}

FAULTY = {  # what a scalar can tell, or nothing
    "F1 entropy from 1.6 to 0.02": ({"entropy": falling(1.6, 0.02), "reward": flat}, {"LEN002"}),
    "F2 entropy from 0.35 to 0.004": ({"entropy": falling(0.35, 0.004), "reward": flat}, {"LEN002"}),
    "F3 all groups alike": ({"frac_reward_zero_std": constant(1.0), "reward": flat}, {"ADV004"}),
    "F4 ratio stuck at 1": ({"clip_ratio/region_mean": constant(0.0), "reward": flat}, set()),
    "F5 shifted log-probabilities": (
        {"clip_ratio/region_mean": lambda t, r: _noisy(r, 0.7), "reward": flat},
        set(),
    ),
    "F6 KL explodes": ({"kl": lambda t, r: _noisy(r, 0.02 * 1000**t), "reward": flat}, set()),
    "F7 KL drifts": ({"kl": lambda t, r: _noisy(r, 0.01 + 6 * t), "reward": flat}, set()),
    "F8 KL below zero": ({"kl": lambda t, r: -_noisy(r, 0.01 + 0.3 * t), "reward": flat}, {"KLD002"}),
    "F9 length from 180 to 1.3": (
        {"completions/mean_length": falling(180, 1.3), "reward": flat},
        {"LEN001"},
    ),
    "F10 one token from the start": (
        {"completions/mean_length": constant(1.0), "reward": constant(0.0)},
        set(),
    ),
    "F11 flat reward": ({"reward": flat}, set()),
    "F12 everything is cut": ({"completions/clipped_ratio": constant(1.0), "reward": flat}, {"LEN003"}),
}


def trainer_state(folder, logs, config_class="GRPOConfig"):
    """A checkpoint as transformers writes it; the arguments hold nothing but the name of their class."""
    checkpoint = folder / f"checkpoint-{logs[-1]['step']}"
    checkpoint.mkdir(parents=True)
    state = {"global_step": logs[-1]["step"], "log_history": logs}
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    if config_class:
        with zipfile.ZipFile(checkpoint / "training_args.bin", "w") as archive:
            archive.writestr("training_args/data.pkl", f"ctrl.trainer.grpo_config\n{config_class}\n")
    return folder


def json_lines(path, records):
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def critic(seed, explained):
    """A log of verl with a critic: what ``compute_data_metrics`` tells, by step."""
    rng = random.Random(seed)
    return [
        {
            "step": step + 1,
            "data": {
                "critic/score/mean": 0.3 + rng.gauss(0, 0.04),
                "critic/vf_explained_var": explained(step / STEPS, rng),
                "critic/values/mean": 0.3,
                "critic/advantages/mean": rng.gauss(0, 0.01),
                "critic/advantages/max": 2.5,
                "critic/advantages/min": -3.5,
                "actor/grad_norm": _noisy(rng, 0.8, 0.3),
                "actor/entropy": _noisy(rng, 0.6),
                "response_length/mean": _noisy(rng, 180),
                "timing_s/step": 30.0,
            },
        }
        for step in range(STEPS)
    ]


def rollouts(step, scores, inputs=None):
    """A rollout dump of verl: four rollouts of each prompt, unless told otherwise."""
    prompts = inputs or [f"what is {index // 4}?" for index in range(len(scores))]
    return [
        {"input": prompt, "output": f"it is {score}", "gts": "1", "score": score, "step": step, "acc": score}
        for prompt, score in zip(prompts, scores, strict=True)
    ]
