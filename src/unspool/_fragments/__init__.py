"""Fragments: closed pieces of graph described by their structure alone, calls of them, and how pieces become calls."""
