"""A throwaway Kubernetes cluster on this machine, for the demo and the tests.

Everything of one cluster runs in namespaces of its own under one init process; when that process ends,
everything ends. `dispatch_local.cluster.Cluster` is the Python interface, `python -m dispatch_local` the
command line, `programs.py` the list of what is built and run.
"""
