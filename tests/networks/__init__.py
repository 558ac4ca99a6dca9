"""Networks: the algorithms against exact and published numbers."""
