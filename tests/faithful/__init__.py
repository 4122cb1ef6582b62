"""Whether the models of the tests are true to the real thing: see `tests/README.md`."""
