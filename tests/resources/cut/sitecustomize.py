"""Loaded by every Python that the engine starts with this folder on PYTHONPATH; see `resources.cutting`."""

import sys

if "pulumi.dynamic" in sys.orig_argv:
    from resources.cutting import install

    install()
