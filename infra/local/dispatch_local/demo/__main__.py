"""`python -m dispatch_local.demo`."""

from dispatch_local.demo.command import demo_command

demo_command()
