"""Audits of TRL trainers: ``audit(trainer)`` on a ``GRPOTrainer`` or ``SFTTrainer``."""
