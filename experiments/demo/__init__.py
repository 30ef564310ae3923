"""`make demo`.  One BLAS thread a process: the demo's many processes share a few cores."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
