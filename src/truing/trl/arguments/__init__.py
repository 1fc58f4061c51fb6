"""TRL's arguments: configs with TRL's defaults, and the recipe that they become."""
