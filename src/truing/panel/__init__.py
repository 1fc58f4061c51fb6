"""The first screen of a run on a terminal: what is read for it, how often, and how it looks."""
