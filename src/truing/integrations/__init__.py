"""The doctor beside other trainers."""
