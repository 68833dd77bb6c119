"""Files that are replaced whole, fsync, locks, histograms, JSON: what several packages of the store need.

Begin with sync.py and checked_file.py.
Imported by every package; it imports store/errors.py only.
"""
