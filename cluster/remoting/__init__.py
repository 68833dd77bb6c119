"""RocketMQ's remoting protocol: codec, client, server, request codes and headers.

Begin with command.py (without I/O), then server.py and dispatch.py.
Imported by all packages of cluster.
"""
