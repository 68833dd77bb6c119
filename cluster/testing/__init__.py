"""A name server and brokers for tests of applications: processes that are ready in less than a second, and a plugin of pytest.

Begin with server.py and cluster.py; plugin.py makes fixtures of them.
Imported by twinlog.testing, and by pytest.
"""
