"""A fault-tolerant pool of processes that load samples: a worker can be killed at the cost of at most one sample.

There are three kinds of process. The *main* process trains, and reads whole batches from shared memory (``batches``,
``arena``). The *supervisor*, a single-threaded fork of it, hands samples to workers, watches their time, and restarts
those that hang or die (``supervisor``, ``handle``). *Workers*, forked from the supervisor, load samples (``worker``).
A ``Work`` defines what they load. Only a few bytes per sample pass between processes (``channel``, ``items``), never
pixels.
"""
