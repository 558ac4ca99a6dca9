"""The benchmark suite: the same loops in unspool, in the libraries people use instead, and by hand.

``workload`` says what a workload is made of, each ``b*_*.py`` has one, and ``run.py`` measures them.
"""
