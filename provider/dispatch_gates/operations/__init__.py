"""What the product does, each operation written once, as a generator of requests. No client, no clock, no I/O."""
