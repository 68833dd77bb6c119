"""Producer and consumer on trio, over `cluster/remoting/client.py`."""
