"""`pulumi up` in this folder installs the readmission gate and a queue behind it; see README.md."""

import pulumi

from dispatch_infra import settings, stack

try:
    outputs = stack.install(settings.read(pulumi.Config()))
except ValueError as error:
    # A setting that is not valid is the user's to mend: its sentence, without a traceback.
    raise pulumi.RunError(str(error)) from None
for name, value in outputs.items():
    pulumi.export(name, value)
