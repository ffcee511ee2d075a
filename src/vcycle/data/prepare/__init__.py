"""Preparation: writes a dataset once in a form that trains fast, and verifies datasets.

``settings`` and ``sources`` define the output and the input. ``run`` runs ``encode`` or ``arrays`` on each file, on one
of the engines of ``vcycle.data.engines``. ``journal`` records finished work. Loaders read ``index`` via ``source``.
"""
