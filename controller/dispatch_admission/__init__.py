"""The admission controller: raises A before every execution, never while the previous one may still run.

`decide` is the safety rule, `observe` and `act` run it as one pass over one Workload; the rest keeps it going.
"""
