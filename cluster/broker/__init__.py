"""The broker.

Begin with broker.py; settings.py has what changes while it runs, wiring.py makes the parts.
Imported by cli, metrics and http.
"""
