"""The driver: runs operations against a real API server, over the official client.

One connection pool and one mapping of errors for everybody: the controller awaits `Driver.run` in its event loop;
blocking callers (Pulumi's provider threads, the CLI) use `run`, which keeps one loop in the background.
"""

from dispatch_gates.cluster.blocking import run
from dispatch_gates.cluster.connection import ClusterConfigError, Connection, Target
from dispatch_gates.cluster.driver import Driver, drive

__all__ = ["ClusterConfigError", "Connection", "Driver", "Target", "drive", "run"]
