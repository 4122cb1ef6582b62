"""Tests of single parts, without a cluster, grouped by promise."""
