"""A fault-tolerant pool of processes that load samples: a worker can be killed at the cost of at most one sample.

There are three kinds of process. The *main* process trains, and reads whole batches from shared memory (``batches``,
``arena``). The *supervisor*, a single-threaded fork of it, hands samples to workers, watches their time, and restarts
those that hang or die (``supervisor``, ``handle``). *Workers*, forked from the supervisor, load samples (``worker``).
A ``Work`` defines what they load. Only a few bytes per sample pass between processes (``channel``, ``items``), never
pixels.

It stays beside PyTorch's ``DataLoader`` for its promises: workers that can be killed, a time limit per clip, batches
that all workers fill together, one fork for a whole plan. Measured on a busy machine, it loads video at 0.8 to 1.2
times the ``DataLoader``'s speed with no consistent difference, arrays of 79 pixels and more 1.2 to 1.7 times faster,
and smaller arrays at 0.8 to 1.0 times its speed (``benchmarks/data``).
"""
