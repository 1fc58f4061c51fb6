"""Audits of other trainers by the doctor."""
