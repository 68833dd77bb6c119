"""Options, tables, progress, errors and completion: what commands share.

Begin with options.py and render.py.
Imported by the commands.
"""
