"""`twinlog log ...`: commands on store directories.

Begin with info.py and directory.py.
Imported by other commands on directories.
"""
