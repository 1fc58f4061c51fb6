"""From pairs and checks to a verdict, and from a verdict to a promoted change."""
