"""Real ranks: the same program in several processes, with collectives among them.

``run(program)`` runs a program once; a ``Cluster`` is processes of your own; ``RankError`` is what
a failed run raises.

A program and its arguments reach a rank's process (``local.worker``) over a connection of its own,
and its result comes back there. Among themselves the ranks have memory that all of them see, and a
pipe each for messages, which also tell them to wake up and look.

How an array gets through ``all_reduce`` on this machine: ``communicator`` checks it and chooses an
algorithm; ``local.collectives`` adds it up where all ranks see it, ``local.shared_memory``; and the
ranks wait for each other in ``local.synchronization``. With the name of a schedule, ``plan``
carries it out instead, over the messages of ``local.transport``.
"""

from dtlib.ranks.failures import RankError
from dtlib.ranks.local.cluster import Cluster
from dtlib.ranks.result import Result
from dtlib.ranks.runs import run, shutdown

__all__ = ["Cluster", "RankError", "Result", "run", "shutdown"]
