"""Processes, the wire and people: broker, name server, clients, operations, command line, pages.

Begin with broker/broker.py and cli/main.py.
Imported by nothing but twinlog.client and twinlog.spark.
"""
