"""Options of TRL's trainers that the tests have in common."""

SMALL_RUN = {
    "max_steps": 2,
    "learning_rate": 1e-3,
    "report_to": [],
    "save_strategy": "no",
    "use_cpu": True,
    "bf16": False,
    "model_init_kwargs": {"dtype": "float32"},
    "disable_tqdm": True,
    "gradient_checkpointing": False,
}
"""Two updates on a CPU, in float32, with nothing kept."""
