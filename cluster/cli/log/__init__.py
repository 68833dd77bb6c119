"""`twinlog log ...`: commands on store directories.

Begin with group.py.
Imported by main.py and other commands on directories.
"""
