"""What all tests share: property tests have no deadline, for the machine may be busy with others."""

from hypothesis import settings

settings.register_profile("intus", deadline=None)
settings.load_profile("intus")
