"""A model of the cluster for the tests: the API server, the objects in it, and those who act on them."""
