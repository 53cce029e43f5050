"""Settings of every test."""

from hypothesis import settings

# No deadline: a test that fails because the machine was busy says nothing about the code.
settings.register_profile("penstock", deadline=None, print_blob=True)
settings.load_profile("penstock")
