"""Models: loading them, scoring with them, adapting them, and naming their weights."""

import logging

# peft imports bitsandbytes, which on a CPU advises to install kernels whose products have other bits
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
