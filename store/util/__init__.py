"""Files that are replaced whole, fsync, locks, histograms, JSON: shared by the packages of the store.

Begin with sync.py and checked_file.py.
Imported by every package; it imports store/errors.py only.
"""
