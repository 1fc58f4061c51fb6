"""The doctor beside TRL: ``audit(trainer)`` on a ``GRPOTrainer`` or ``SFTTrainer``."""
