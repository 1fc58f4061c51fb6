"""Several processes that train one policy: ranks, sharded weights, and which rank computes which rows.

One process is one rank: nothing is sharded, and every exchange returns the rank's own value.
"""
