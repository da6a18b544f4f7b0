"""Write a stub of the system's libc++, to link against, with what torch's libraries for macOS take from it.

The arguments are the folder of these libraries and the file to write.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "src/elementwise/tools"))
from audit_macos import LIBCXX, from_libcxx

torch, stub = map(Path, sys.argv[1:])
symbols = ", ".join(f"'{name}'" for name in sorted(from_libcxx(torch)))
stub.write_text(f"""--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '{LIBCXX}'
exports:
  - targets: [ arm64-macos ]
    symbols: [ {symbols} ]
...
""")
