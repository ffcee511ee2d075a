"""Preparation: writes a dataset once in a form that trains fast, and verifies datasets.

``settings`` and ``sources`` define the output and the input. ``run`` processes the files with the worker pool of
``crew``, which runs ``encode`` or ``arrays``. ``journal`` records finished work. Loaders read ``index`` via ``source``.
"""
