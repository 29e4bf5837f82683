"""What holds for every test: hypothesis sets no time limits, since machines differ and correctness does not."""

from hypothesis import settings

settings.register_profile("no time limits", deadline=None)
settings.load_profile("no time limits")
