"""How before.cpp and before.cu are built: for this CPython, this torch and this CUDA."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="before",
    ext_modules=[CUDAExtension("before._C", ["before.cpp", "before.cu"], extra_compile_args={"cxx": ["-O3"]})],
    cmdclass={"build_ext": BuildExtension},
)
