"""`twinlog demo`: failovers with nothing lost, shown live.

Begin with play.py.
Imported by main.py.
"""
