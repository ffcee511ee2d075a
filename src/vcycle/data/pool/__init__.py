"""A pool of processes that load samples one by one, and can be killed without losing more than a sample.

Three kinds of process. The *main* one trains, and gets whole batches out of shared memory (``batches``, ``arena``).
The *supervisor*, forked from it once and without threads, hands samples to workers, watches their time, and replaces
those that hang or die (``supervisor``, ``handle``). *Workers*, forked from the supervisor, load (``worker``). What is
loaded is a ``Work``; what crosses between processes is a few bytes per sample (``channel``, ``items``), never pixels.
"""
