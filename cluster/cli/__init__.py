"""The `twinlog` command, a file for each family of commands.

Begin with main.py.
Imported by nothing but cluster/pipeline/submit.
"""
