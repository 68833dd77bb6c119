"""Commands that run processes: up, broker, namesrv, dashboard.

Begin with broker.py, service.py and supervisor.py.
Imported by main.py and demo.
"""
