"""A bystander of the same user, with a secret in its memory and environment; says on request what it holds."""

from __future__ import annotations

import ctypes
import os
import sys

buffer = ctypes.create_string_buffer(os.environ["GENPRM_TEST_TOKEN"].encode())
print(ctypes.addressof(buffer), flush=True)
for _ in sys.stdin:
    print(buffer.value.decode("latin-1"), flush=True)
