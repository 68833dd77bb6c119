"""TLS for both ends of a connection.

Begin with contexts.py.
Imported by remoting and by whoever configures a server or client.
"""
