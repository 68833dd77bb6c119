"""Every operation that a person can ask for, as typed async functions.

Begin with admin.py; errors.py says how each failure is explained.
Imported by cli, http and dashboard, which have no logic of their own.
"""
