"""The doctor: rules over the rows, numbers and facts of an update."""
