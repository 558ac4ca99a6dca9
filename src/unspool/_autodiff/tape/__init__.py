"""The tape: a graph as a numbered list, differentiated one plain step at a time."""
