"""Configuration files of other trainers, read as the declared settings of their traces."""
