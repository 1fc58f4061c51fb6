"""Reports of diagnoses as text, SARIF and JUnit, and summaries of a run."""
