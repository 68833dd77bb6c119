"""The HA stream: its codec without I/O, and the transport that carries it.

Begin with protocol.py.
Imported by master and slave.
"""
