"""Values and rules, pure: standard library and python-ulid only, no I/O, no clock, no client.

What the API server sends is parsed here once, at the border, into frozen values. What is not understood parses
to a value that can never open a gate.
"""
