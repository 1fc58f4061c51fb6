"""Pages and lines of a lab, made from its ledger."""
