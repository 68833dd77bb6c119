"""The remoting wire: frames, headers, codes, client and server."""
