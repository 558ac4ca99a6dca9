"""Looking at graphs: sizes, summaries."""
