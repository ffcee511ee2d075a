"""A pool of processes that load samples one by one, and can be killed without losing more than a sample.

Three kinds of process. The *main* one trains, and gets whole batches out of shared memory (``batches``, ``arena``).
The *supervisor*, forked from it once and without threads, hands samples to workers, watches their time, and replaces
those that hang or die (``supervisor``, ``handle``). *Workers*, forked from the supervisor, load (``worker``). What is
loaded is a ``Work``; what crosses between processes is a few bytes per sample (``channel``, ``items``), never pixels.

It stays beside PyTorch's ``DataLoader`` for its promises: workers that can be killed, a time limit per clip, batches
that all workers fill together, one fork for a whole plan. Measured on a busy machine, it loads video at 0.8 to 1.2
of the ``DataLoader``'s speed with no consistent difference, arrays of 79 pixels and more 1.2 to 1.7 times faster, and
smaller arrays at 0.8 to 1.0 of its speed (``benchmarks/data``).
"""
