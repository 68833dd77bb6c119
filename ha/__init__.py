"""Bytes from a master's log into a replica's log. Imports store only."""
