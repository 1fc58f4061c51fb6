"""Steps of other trainers on disk: traces (docs/trace.md); version 0 are the files of an audit beside TRL."""
