"""Shared parts of the commands: options, tables, progress, errors, completion.

Begin with options.py and render.py.
Imported by the commands.
"""
