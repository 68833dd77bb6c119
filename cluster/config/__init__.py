"""Configuration files, environment, contexts and credentials: what people write, and how it is read and shown.

Begin with config_file.py.
Imported by broker, namesrv, admin and the front ends.
"""
