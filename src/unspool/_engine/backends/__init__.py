"""What runs programs and loops: `base` says what a backend is; NumPy and the native one are the two there are."""
