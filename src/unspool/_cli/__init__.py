"""The command ``unspool``: demonstrations of the loops, checks of the gradients, facts about the installation.

Each command imports what it needs when it runs, so that ``unspool --version`` answers at once.
"""
