"""How before.cpp is built: for this CPython and this torch."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    name="before",
    ext_modules=[CppExtension("before._C", ["before.cpp"], extra_compile_args=["-O3"])],
    cmdclass={"build_ext": BuildExtension},
)
