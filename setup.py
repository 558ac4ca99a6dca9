"""The part that is built: the core, in C. Everything else about the package is in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup

setup(ext_modules=[Extension("unspool._core", sorted(glob("src/core/*.c")), depends=["src/core/core.h"])])
