"""Dumps that other trainers write by themselves, as steps of a trace: a file for each trainer."""
