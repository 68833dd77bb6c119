"""RocketMQ's remoting protocol: codec, client, server, request codes and headers.

Begin with command.py (codec, without I/O), then server.py, dispatch.py and request.py for servers, client.py and calls.py for
clients. header_fields.py turns the classes in headers/ into fields of the wire.
Imported by all packages of cluster.
"""
