"""Makes the dumps in tests/data/dumps with the code of the trainers that write them."""
