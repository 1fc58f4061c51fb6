"""Bugs as people had them, planted one by one in a real run: what the doctor must find, and name."""
