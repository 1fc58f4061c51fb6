"""Fairness and hallucination trained together: BBQ and HaluEval."""
