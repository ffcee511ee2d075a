"""Preparation: a dataset written once in a form that trains fast, and the verification of one that is not.

``settings`` says what is written, ``sources`` from what; ``run`` does it with the processes of ``crew``, which run
``encode`` or ``arrays``; ``journal`` remembers what is done; ``index`` is what a loader reads, through ``source``.
"""
