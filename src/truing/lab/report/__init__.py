"""Pages and lines of a lab, derived from its ledger."""
