"""How evaluated pieces of a graph are recognised and folded into calls."""
