"""The name server: which brokers are there, and which of them has which topic."""
