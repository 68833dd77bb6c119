"""The `twinlog` command, a file for each family of commands.

Begin with main.py.
Imported only by cluster/pipeline/submit.
"""
