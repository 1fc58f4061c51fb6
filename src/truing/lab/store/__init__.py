"""A lab on disk: settings, hypothesis files, ledger."""
