"""TLS for both ends of a connection.

Begin with contexts.py.
Imported by remoting and by everything that configures a server or client.
"""
