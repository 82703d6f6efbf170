"""Shared by every job: whole files, a log, a manifest, its code."""
