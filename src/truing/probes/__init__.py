"""The probe ladder: small problems whose answer is known, run through the trainer's own code."""
