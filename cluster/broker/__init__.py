"""One broker: the tables clients work with, the requests they send, and the services that run beside the store."""
