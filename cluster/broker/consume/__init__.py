"""Waiting for messages: held pulls, what consumers may see already, offsets that moved.

Begin with long_polling.py.
Imported by the processors and wiring.py.
"""
