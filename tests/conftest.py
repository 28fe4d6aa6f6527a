from __future__ import annotations

import os

from hypothesis import settings

# No deadline: a first call may import or allocate. In CI the same examples every time.
settings.register_profile("vicinal", deadline=None, max_examples=50, derandomize=bool(os.environ.get("CI")))
settings.load_profile("vicinal")
