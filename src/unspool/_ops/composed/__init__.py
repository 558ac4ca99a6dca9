"""What NumPy has under a name of its own and is made of other ops here; no family of ops needs any of it.

Each module is loaded when one of its names is asked for.
"""
