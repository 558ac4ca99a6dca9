"""The parts that are built, in C: the core, and the native backend. All else about the package is in pyproject.toml."""

from glob import glob
from pathlib import Path

import numpy as np
from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension("unspool._core", sorted(glob("src/core/*.c")), depends=sorted(glob("src/core/*.h"))),
        Extension(
            "unspool._native",
            sorted(glob("src/native/*.c")),
            include_dirs=[np.get_include()],
            # NumPy's distributions, which it ships for extensions to be linked with.
            library_dirs=[str(Path(np.__file__).parent / "random" / "lib")],
            libraries=["npyrandom", "m"],
            depends=["src/native/native.h"],
            # Products and sums are rounded one by one, as NumPy's are; a root is one instruction.
            extra_compile_args=["-ffp-contract=off", "-fno-math-errno"],
        ),
    ]
)
