from __future__ import annotations

import os
import signal

from hypothesis import settings

# No deadline: a first call may import or allocate. In CI the same examples every time.
settings.register_profile("vicinal", deadline=None, max_examples=50, derandomize=bool(os.environ.get("CI")))
settings.load_profile("vicinal")

# A shell starts what runs in the background with SIGINT ignored; the tests of interruptions, and the processes that
# they start, need Python's handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
