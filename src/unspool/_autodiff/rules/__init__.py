"""Derivative rules and operations of users."""
