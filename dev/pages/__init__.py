"""Generates pages of docs/ from the code: recipes, metrics, rules."""
