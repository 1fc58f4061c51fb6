"""Other diagnosis tools for RL runs, each applied to the same runs as the doctor.

A peer is a package in a virtual environment of its own. Its file here converts a recorded run to its input;
the peer's Python runs the file of the same name in ``in_peer_env/``, which returns the peer's findings.
"""

from truing.faults.peers import martingale, provenir, rldoctor, rlprobe, rlwatch, stabilityguard
from truing.faults.peers.peer import Peer

PEERS: dict[str, Peer] = {
    module.PEER.name: module.PEER
    for module in (rldoctor, rlprobe, rlwatch, martingale, provenir, stabilityguard)
}
"""Peers in the order of the page."""
