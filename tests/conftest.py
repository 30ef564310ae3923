"""How hard the properties look: `EDL_HYPOTHESIS=deep make test` tries ten times as many cases as every run does."""

import os

from hypothesis import settings

settings.register_profile("ci", deadline=None, derandomize=True)  # the same cases in every run
settings.register_profile("deep", deadline=None, max_examples=1_000)
settings.load_profile(os.environ.get("EDL_HYPOTHESIS", "ci"))
