"""Read what was logged."""


def of_backends(caplog):
    """Return the messages of backends; the sender of another test's probe may log something meanwhile."""
    return [record.getMessage() for record in caplog.records if record.name == "intus.backends"]
