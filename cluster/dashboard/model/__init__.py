"""Content of the page as values: a snapshot, its past, and the verdict.

Begin with snapshot.py and verdict.py.
Imported by view and the routes.
"""
