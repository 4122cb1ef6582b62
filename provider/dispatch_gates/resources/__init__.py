"""The Pulumi resources: gated jobs as ordinary infrastructure code.

    from dispatch_gates.resources import GatedJob

`GatedJob` is the usual case: identity, job and opening in one call. `JobIdentity`, `GatedTrainJob` and `JobOpening`
are its parts, for programs that start and open in separate steps; `SweepOpening` opens many jobs in one. Needs the
extra `dispatch-gates[pulumi]`; nothing else in `dispatch_gates` imports pulumi.

Kept for ever, because users' states hold them: the modules and names of the provider classes, the type tokens
(`pulumi-python:dynamic/dispatch:…`, `dispatch:index:GatedJob`) and the names of all properties.
"""

from dispatch_gates.resources.gated_job import GatedJob
from dispatch_gates.resources.gated_train_job import GatedTrainJob
from dispatch_gates.resources.job_identity import JobIdentity
from dispatch_gates.resources.job_opening import JobOpening
from dispatch_gates.resources.sweep_opening import SweepOpening

__all__ = ["GatedJob", "GatedTrainJob", "JobIdentity", "JobOpening", "SweepOpening"]
