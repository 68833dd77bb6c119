"""Configuration files, environment variables, contexts and credentials of users: reading, writing, hiding secrets.

Begin with config_file.py.
Imported by broker, namesrv, admin and the front ends.
"""
