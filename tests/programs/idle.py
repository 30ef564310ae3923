"""A trainer that only waits, says its name, and leaves on SIGTERM."""

import os
import signal
import sys
import time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
sys.stdout.write(f"hello from {os.environ['EDL_NAME']}\n")
sys.stdout.flush()
while True:
    time.sleep(1)
