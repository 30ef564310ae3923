"""How hard the properties look: the same cases in every run, or (`make test-deep`) others each time."""

import os

from hypothesis import HealthCheck, settings

UNTIMED = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow,))  # the machine may be slow, or pause

settings.register_profile("ci", UNTIMED, derandomize=True)  # the same cases in every run
settings.register_profile("random", UNTIMED, max_examples=200, print_blob=True)  # other ones in each run
settings.register_profile("deep", UNTIMED, max_examples=1_000, print_blob=True)
settings.load_profile(os.environ.get("EDL_HYPOTHESIS", "ci"))
