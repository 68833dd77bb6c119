"""Integrity of stored bytes: digests of the log, the scrub, checks on reading, and repair from a replica.

Begin with digest.py, then scrub.py and repair.py.
Imported by read, truncation, ha and cluster.
"""
