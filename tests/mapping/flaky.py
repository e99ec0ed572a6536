"""A function that fails at times, for the tests of what is tried again."""


def failing(failures):
    """Return one that fails so often at messages of these numbers."""

    def flaky(message):
        number = message.body["number"]
        if failures.get(number, 0):
            failures[number] -= 1
            raise OSError
        return message

    return flaky
