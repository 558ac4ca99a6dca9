"""Looking on while a program runs: a line of progress, and where the time goes."""
