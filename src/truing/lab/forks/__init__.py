"""An experiment on a run: forks under changed recipes, in pairs with one that is unchanged."""
