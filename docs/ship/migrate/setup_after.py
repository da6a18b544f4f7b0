"""The same with setuptools, on both stable ABIs: one wheel for CPython from 3.10 and torch from 2.10."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

STABLE = ["-DTORCH_TARGET_VERSION=0x020a000000000000", "-DPy_LIMITED_API=0x030a0000"]

setup(
    name="after",
    version="0.1.0",
    packages=["after"],
    ext_modules=[
        CppExtension("after._C", ["after.cpp"], extra_compile_args=["-O3", *STABLE], py_limited_api=True),
    ],
    cmdclass={"build_ext": BuildExtension},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
    install_requires=["torch>=2.10"],
)
