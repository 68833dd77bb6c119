"""Processes, the wire and people: remoting, name server, broker, clients, command line."""
