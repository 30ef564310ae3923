"""How hard the properties look: the same cases in every run, or (`make test-deep`) others each time."""

import os

from hypothesis import settings

settings.register_profile("ci", deadline=None, derandomize=True)  # the same cases in every run
settings.register_profile("random", deadline=None, max_examples=200, print_blob=True)  # other ones in each run
settings.register_profile("deep", deadline=None, max_examples=1_000, print_blob=True)
settings.load_profile(os.environ.get("EDL_HYPOTHESIS", "ci"))
