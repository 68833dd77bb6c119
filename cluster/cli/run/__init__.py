"""Commands that run: up, broker, namesrv, dashboard.

Begin with commands.py, then service.py and supervisor.py.
Imported by main.py and demo.
"""
