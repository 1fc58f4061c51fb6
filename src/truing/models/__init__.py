"""Models: embedded, local or from the hub; adapters, digests, export."""
