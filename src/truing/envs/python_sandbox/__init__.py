"""A Python tool whose programs run in a confined process."""
