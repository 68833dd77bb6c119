"""Request handlers, one module for each family of request codes; each module lists its own in HANDLERS."""
