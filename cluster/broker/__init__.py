"""One broker.

Begin with broker.py; wiring.py makes the parts and joins them, dispatch.py says which processor has which request.
Imported by cli, metrics and http.
"""
