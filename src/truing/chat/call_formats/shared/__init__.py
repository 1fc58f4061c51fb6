"""What the call formats share: scanners, literals, tags and grammars."""
