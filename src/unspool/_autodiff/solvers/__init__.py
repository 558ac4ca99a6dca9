"""Fixed points, eigenpairs and linear equations, differentiated without looking at the iterations."""
