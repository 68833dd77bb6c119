"""TLS for both ends of a connection.

Begin with contexts.py; renewed.py keeps a server's up to date.
Imported by remoting and by everything that configures a server or client.
"""
