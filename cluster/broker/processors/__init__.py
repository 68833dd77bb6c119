"""Request processors: for each request code a function that takes its header.

Begin with send.py and pull.py; dispatch.py above lists them all.
Imported by dispatch.py.
"""
