"""Held pulls, visibility of messages for consumers, and events of corrected offsets.

Begin with long_polling.py.
Imported by the processors and wiring.py.
"""
