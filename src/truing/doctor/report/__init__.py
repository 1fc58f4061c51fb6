"""Diagnoses as text, SARIF and JUnit; summaries of a run."""
