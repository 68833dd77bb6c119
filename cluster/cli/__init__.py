"""The command line: one module for each family of commands, which parses, calls `cluster/admin/admin.py` and renders."""
