"""The audit of identities: an API server's audit log, read for executions that broke a promise.

It shares no code with what decides: of the product it imports the vocabulary alone, so that a mistake in the rules
cannot excuse itself here. It believes nothing that the product says of itself, only what the API server recorded.

`log` puts the writes of one or several files in order, `facts` takes from each what matters, `judge` says what was
wrong, `policy` is the audit policy that all this needs. What people type is `dispatch-gates audit`.
"""

from dispatch_gates.audit.judge import Job, Pod, Timeline, Violation, read
from dispatch_gates.audit.log import LogError, Moment

__all__ = ["Job", "LogError", "Moment", "Pod", "Timeline", "Violation", "read"]
