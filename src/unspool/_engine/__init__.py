"""Evaluation: from graph to values."""
