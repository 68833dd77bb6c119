"""Finding out whether two logs are the same, and where they part, by digests or samples.

Begin with comparison.py, then preflight.py.
Imported by master, slave and cluster.
"""
