"""Saving: recipes, loops and values in files, and runs that are written as they go.

`file` has ``us.save`` and ``us.load``, `run` has ``us.spool`` and ``us.resume``. Between them and the graph: `writer`
says what a graph is made of as records, `reader` reads these back as data, `rebuild` makes nodes of them. `codec` is
the closed vocabulary of what may stand in a record; nothing in a file is ever run.
"""
