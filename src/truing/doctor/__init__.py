"""The doctor: rules over the samples, numbers and facts of a step."""
