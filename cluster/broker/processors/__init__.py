"""Request processors: classes whose public methods serve the request codes that their headers name.

Begin with send.py and pull.py; wiring.py above makes them all.
Imported by wiring.py and broker.py.
"""
