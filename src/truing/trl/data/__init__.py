"""TRL's data sets, tools, environments and rewards, as an environment of Truing."""
