"""Gated TrainJobs: recorded before they run, and never run twice at once.

What programs import. The safety rules are in `contract`, what the product does in `operations`, the Pulumi
resources in `resources`.
"""
