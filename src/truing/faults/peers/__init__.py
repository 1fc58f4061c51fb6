"""Other tools that diagnose RL runs, each asked about the very runs that the doctor judged.

A peer is a package in a virtual environment of its own. Its file here says what it is given of a recorded
run; the file of the same name in ``inside/`` is run by the peer's Python and gives back what the peer says.
"""

from truing.faults.peers import martingale, provenir, rldoctor, rlprobe, rlwatch, stabilityguard
from truing.faults.peers.peer import Peer

PEERS: dict[str, Peer] = {
    module.PEER.name: module.PEER
    for module in (rldoctor, rlprobe, rlwatch, martingale, provenir, stabilityguard)
}
"""In the order of the page."""
