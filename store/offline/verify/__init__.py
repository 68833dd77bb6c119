"""`twinlog log verify`: every check of a store directory.

Begin with verify.py, which runs the others.
Imported by cluster/cli and cluster/pipeline.
"""
